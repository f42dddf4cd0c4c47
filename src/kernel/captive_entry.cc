#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "kernel/captive_child.h"
#include "kernel/captive_network.h"

namespace carrel::kernel {

namespace {

// The errno of whatever failed, or 0.
int make_there(int users, int network, const CaptiveNetwork& messages) {
  // The real root has every right there already, and would lose them in another's namespace.
  if (::geteuid() != 0 && ::setns(users, CLONE_NEWUSER) != 0) {
    return errno;
  }
  if (::setns(network, CLONE_NEWNET) != 0) {
    return errno;
  }
  const int routed = send_routes(messages.routes, messages.routes6);
  return -(routed != 0 ? routed : send_rules(messages.rules));
}

}  // namespace

Status make_captive(const ProcessName& process, const CaptiveNetwork& network) {
  CARREL_ASSIGN(const UniqueFd own, open_at(AT_FDCWD, "/proc/self/ns/net", O_RDONLY));
  CARREL_ASSIGN(const UniqueFd there,
                open_at(AT_FDCWD, "/proc/" + std::to_string(process.number) + "/ns/net", O_RDONLY));
  // CRITICAL: of a process that has ended the number may be another's.
  pollfd ended{process.descriptor, POLLIN, 0};
  if (::poll(&ended, 1, 0) != 0) {
    return Error{Code::kGone, 0, "the sandbox's first process ended", {}};
  }
  struct stat here{};
  struct stat other{};
  // CRITICAL: these rules in the host's network would cut it off.
  if (::fstat(own.get(), &here) != 0 || ::fstat(there.get(), &other) != 0 ||
      here.st_ino == other.st_ino) {
    return Error{Code::kInvalid, 0, "the sandbox has no network of its own", {}};
  }
  const UniqueFd users(::ioctl(there.get(), NS_GET_USERNS));
  if (!users.valid()) {
    return system_error("find whose the sandbox's network is");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(make_there(users.get(), there.get(), network));
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error{Code::kUnsupported, child > 0 ? WEXITSTATUS(status) : errno,
                 "route the sandbox's network to itself", "run 'carrel doctor'"};
  }
  return {};
}

}  // namespace carrel::kernel
