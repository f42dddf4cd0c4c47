#include "kernel/user_namespace_child.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kernel/raw_call_child.h"

namespace carrel::kernel {

namespace {

int wait_for_end(void* parent) {
  raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  // Its parent may have gone before that.
  while (raw_call(SYS_getppid, 0) == word(parent)) {
    const long pause[2] = {1, 0};  // struct timespec
    raw_call(SYS_nanosleep, &pause[0], 0);
  }
  return 0;
}

}  // namespace

pid_t clone_waiting_child(void* stack_end) {
  auto* parent = reinterpret_cast<void*>(static_cast<long>(::getpid()));  // a number, as it is
  const pid_t pid = ::clone(wait_for_end, stack_end, CLONE_NEWUSER | CLONE_VM | SIGCHLD, parent);
  return pid < 0 ? -errno : pid;
}

}  // namespace carrel::kernel
