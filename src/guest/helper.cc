#include "guest/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/network.h"

namespace carrel::guest {

namespace {

void say(std::uint32_t& word) {
  __atomic_store_n(&word, 1U, __ATOMIC_RELEASE);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool was_said(const std::uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0; }

// Returns when it was said, and after a while.
void wait_for(std::uint32_t& word) {
  struct timespec while_longest{1, 0};
  if (!was_said(word)) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &while_longest, nullptr, 0);
  }
}

}  // namespace

// On a stack of its own.
int Helper::run(void* helper) {
  Helper& self = *static_cast<Helper*>(helper);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  self.open_network();
  say(self.network_made_);
  while (!was_said(self.may_detach_)) {
    wait_for(self.may_detach_);
  }
  // The new root is this process's, too: pivot_root moves everybody who was in the old one.
  if (chdir("/") != 0 || umount2(".", MNT_DETACH) != 0) {
    self.detach_error_ = errno;
    return 1;
  }
  return 0;
}

void Helper::open_network() {
  if (make_network()) {
    network_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  }
  network_error_ = network_ < 0 ? errno : 0;
}

bool Helper::begin(Failure& failure) {
  alignas(64) static char stack[16U << 10];
  // No signal at its end: it must not look like a command's.
  pid_ = clone(run, stack + sizeof stack, CLONE_VM | CLONE_FILES, this);
  return pid_ > 0 || failure.at("start", "the helper", -errno);
}

void Helper::detach_host() { say(may_detach_); }

bool Helper::enter_network(Failure& failure) {
  while (!was_said(network_made_)) {
    wait_for(network_made_);
    if (!was_said(network_made_) && waitpid(pid_, nullptr, __WALL | WNOHANG) != 0) {
      return failure.at("wait for", "the network", -ESRCH);
    }
  }
  if (network_ < 0) {
    return failure.at("make", "the network namespace",
                      network_error_ == 0 ? -EIO : -network_error_);
  }
  if (setns(network_, CLONE_NEWNET) != 0) {
    return failure.at("move into", "the network namespace", -errno);
  }
  close(network_);
  return true;
}

bool Helper::end(Failure& failure) {
  int status = 0;
  while (waitpid(pid_, &status, __WALL) < 0) {
    if (errno != EINTR) {
      return failure.at("wait for", "the helper", -errno);
    }
  }
  return status == 0 ||
         failure.at("detach", "the host's tree", detach_error_ == 0 ? -EIO : -detach_error_);
}

}  // namespace carrel::guest
