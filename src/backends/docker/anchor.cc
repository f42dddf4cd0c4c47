#include "backends/docker/anchor.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "backends/docker/engine.h"
#include "base/files.h"
#include "base/unix_socket.h"

namespace carrel::docker {

namespace {

// Its descriptors.
constexpr int kContainer = kStandingFirst;     // the container's first process
constexpr int kListener = kStandingFirst + 1;  // if there is one
constexpr int kDoorEnd = kStandingFirst + 2;

constexpr int kWaiting = 64;
constexpr int kPauseMs = 100;

Status write_own(const char* path, const std::string& text) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_WRONLY));
  return write_all(file.get(), text);
}

Status enter_namespaces() {
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC |
                CLONE_NEWUTS) != 0) {
    return system_error("make namespaces for what stands for the sandbox");
  }
  CARREL_TRY(write_own("/proc/self/setgroups", "deny"));
  CARREL_TRY(write_own("/proc/self/gid_map", "0 " + gid + " 1"));
  CARREL_TRY(write_own("/proc/self/uid_map", "0 " + uid + " 1"));
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return system_error("make the mount tree private");
  }
  return {};
}

void hand_in() {
  const UniqueFd connection(::accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.valid()) {
    const std::array<int, 1> beside = {connection.get()};
    (void)send_with(kDoorEnd, std::string_view("\0", 1), beside, MSG_NOSIGNAL | MSG_DONTWAIT);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    ::poll(nullptr, 0, kPauseMs);
  }
}

// The first process of its PID namespace. `ready` is told that it listens.
[[noreturn]] void stand(bool listens, int ready) {
  ::setsid();
  ::close(kStandingRequest);
  ::close(kStandingTell);
  if (!leave_host().ok() ||
      (listens &&
       (::listen(kListener, kWaiting) != 0 || ::fcntl(kListener, F_SETFL, O_NONBLOCK) != 0)) ||
      ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::write(ready, "r", 1) != 1) {
    ::_exit(1);
  }
  ::close(ready);
  for (;;) {
    std::array<pollfd, 3> news = {pollfd{kContainer, POLLIN, 0},
                                  {listens ? kListener : -1, POLLIN, 0},
                                  {listens ? kDoorEnd : -1, 0, 0}};
    if (::poll(news.data(), news.size(), -1) < 0) {
      continue;
    }
    if (news[0].revents != 0 || news[2].revents != 0) {
      ::_exit(0);  // the container has ended, or its guest takes nobody any more
    }
    if (news[1].revents != 0) {
      hand_in();
    }
  }
}

}  // namespace

Status be_anchor(const std::vector<std::string>& lines) {
  CARREL_ASSIGN(const Engine engine, Engine::at(lines[1]));
  const std::string& container = lines[2];
  const bool listens = ::fcntl(kListener, F_GETFD) >= 0;
  CARREL_TRY(enter_namespaces());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    stand(listens, ends[1]);
  }
  ::close(ends[1]);
  char byte = 0;
  if (child < 0 || ::read(ends[0], &byte, 1) != 1) {
    return system_error("start what stands for the sandbox");
  }
  CARREL_TRY(write_all(kStandingTell, std::to_string(child) + "\n"));
  // CRITICAL: the guest sees the end of its door only when nobody has the other end.
  ::syscall(SYS_close_range, kStandingTell, ~0U, 0);
  ::setsid();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return engine.remove(container);
}

Result<Anchor> start_anchor(const sandbox::RoomRequest& request, const std::string& engine,
                            const std::string& container, pid_t first_process) {
  Anchor anchor;
  const UniqueFd first(static_cast<int>(::syscall(SYS_pidfd_open, first_process, 0)));
  std::array<int, 2> door{-1, -1};
  if (!first.valid()) {
    return Error{Code::kGone, 0, "Failed to create sandbox: its container ended", {}};
  }
  if (request.listener >= 0 &&
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, door.data()) != 0) {
    return system_error("make the sandbox's door");
  }
  const UniqueFd own_end(door[0]);
  anchor.door.reset(door[1]);
  std::vector<int> given = {first.get()};
  if (own_end.valid()) {
    given.insert(given.end(), {request.listener, own_end.get()});
  }
  CARREL_ASSIGN(anchor.standing, start_standing(request, {kAnchorRole, engine, container}, given));
  return anchor;
}

}  // namespace carrel::docker
