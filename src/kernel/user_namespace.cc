#include "kernel/user_namespace.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/files.h"
#include "kernel/user_namespace_child.h"

namespace carrel::kernel {

namespace {

Result<UniqueFd> map_and_open(pid_t child, const std::string& uid_map, const std::string& gid_map) {
  CARREL_ASSIGN(const UniqueFd process,
                open_at(AT_FDCWD, "/proc/" + std::to_string(child), O_PATH | O_DIRECTORY));
  CARREL_TRY(write_value_at(process.get(), "gid_map", gid_map));
  CARREL_TRY(write_value_at(process.get(), "uid_map", uid_map));
  return open_at(process.get(), "ns/user", O_RDONLY);
}

}  // namespace

Result<UniqueFd> make_user_namespace(const std::string& uid_map, const std::string& gid_map) {
  WaitingChild memory;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = clone_waiting_child(memory);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) {
    return Error{Code::kUnsupported, -child, "make a user namespace", "run 'carrel doctor'"};
  }
  auto opened = map_and_open(child, uid_map, gid_map);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return opened;
}

}  // namespace carrel::kernel
