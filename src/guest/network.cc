#include "guest/network.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace carrel::guest {

namespace {

bool bring_up_loopback() {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  struct ifreq request {};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  bool up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  close(fd);
  return up;
}

}  // namespace

// It has the guest's memory and descriptors, and a stack of its own.
int Network::run_helper(void* network) {
  Network& self = *static_cast<Network*>(network);
  if (unshare(CLONE_NEWNET) == 0 && bring_up_loopback()) {
    self.descriptor_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  }
  self.error_number_ = self.descriptor_ < 0 ? errno : 0;
  return 0;
}

bool Network::begin(Failure& failure) {
  alignas(64) static char stack[16U << 10];
  // No signal at its end: it must not look like a command's.
  helper_ = clone(run_helper, stack + sizeof stack, CLONE_VM | CLONE_FILES, this);
  return helper_ > 0 || failure.at("start", "the network's helper", -errno);
}

bool Network::join(Failure& failure) {
  if (helper_ == 0) {
    return bring_up_loopback() || failure.at("bring up", "the loopback interface", -errno);
  }
  while (waitpid(helper_, nullptr, __WALL) < 0) {
    if (errno != EINTR) {
      return failure.at("wait for", "the network's helper", -errno);
    }
  }
  if (descriptor_ < 0) {
    return failure.at("make", "the network namespace",
                      error_number_ == 0 ? -EIO : -error_number_);
  }
  if (setns(descriptor_, CLONE_NEWNET) != 0) {
    return failure.at("move into", "the network namespace", -errno);
  }
  close(descriptor_);
  return true;
}

}  // namespace carrel::guest
