#include "backends/oci/porter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/unix_socket.h"

namespace carrel::oci {

namespace {

constexpr int kPorterBacklog = 64;
constexpr int kPorterPauseMs = 100;  // before what went wrong is tried again

// Lets go of everything but these and its standard input, which is nothing.
void keep_only(std::array<int, 3> fds) {
  ::dup2(STDIN_FILENO, STDOUT_FILENO);
  ::dup2(STDIN_FILENO, STDERR_FILENO);
  unsigned first = STDERR_FILENO + 1;
  std::sort(fds.begin(), fds.end());
  for (const int kept : fds) {
    if (kept >= 0) {
      const auto number = static_cast<unsigned>(kept);
      if (number > first) {
        ::syscall(SYS_close_range, first, number - 1, 0);
      }
      first = number + 1;
    }
  }
  ::syscall(SYS_close_range, first, ~0U, 0);
}

// 0 in the child, which ends with this process.
pid_t fork_below() {
  const pid_t above = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != above) {
      ::_exit(1);
    }
  }
  return child;
}

}  // namespace

Result<Porter> Porter::at(UniqueFd listener, UniqueFd door) {
  Porter porter;
  porter.listener_ = std::move(listener);
  porter.door_ = std::move(door);
  if (::listen(porter.listener_.get(), kPorterBacklog) != 0 ||
      ::fcntl(porter.listener_.get(), F_SETFL, O_NONBLOCK) != 0) {
    return system_error("listen on the sandbox's socket");
  }
  return porter;
}

void Porter::hand_in() {
  const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  // A guest that takes none has itself to blame: whoever came is turned away.
  if (connection.valid()) {
    const std::array<int, 1> beside = {connection.get()};
    (void)send_with(door_.get(), std::string_view("\0", 1), beside, MSG_NOSIGNAL | MSG_DONTWAIT);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    ::poll(nullptr, 0, kPorterPauseMs);
  }
}

void Porter::work() {
  for (;;) {
    std::array<pollfd, 2> news = {pollfd{listener_.get(), POLLIN, 0}, {door_.get(), 0, 0}};
    if (::poll(news.data(), news.size(), -1) < 0) {
      continue;
    }
    if (news[1].revents != 0) {  // the guest has closed it
      ::_exit(0);
    }
    if (news[0].revents != 0) {
      hand_in();
    }
  }
}

Status Porter::attend_network(UniqueFd listener) {
  CARREL_ASSIGN(desk_, NetworkDesk::at(std::move(listener)));
  return {};
}

pid_t Porter::start_work() {
  if (!door_.valid()) {
    return 0;
  }
  const pid_t worker = fork_below();
  if (worker == 0) {
    desk_.reset();
    work();
  }
  return worker;
}

pid_t Porter::start_desk() {
  if (!desk_.has_value()) {
    return 0;
  }
  const pid_t worker = fork_below();
  if (worker == 0) {
    // CRITICAL: the guest sees the end of its door only when nobody has the other end.
    listener_.reset();
    door_.reset();
    desk_->work();
  }
  return worker;
}

void Porter::serve(pid_t kernel) {
  keep_only({listener_.valid() ? listener_.get() : -1, door_.valid() ? door_.get() : -1,
             desk_.has_value() ? desk_->listener() : -1});
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::setsid();
  pid_t worker = start_work();
  pid_t desk = start_desk();
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == kernel || (ended < 0 && errno != EINTR)) {
      ::_exit(0);
    }
    if (ended == worker && !WIFEXITED(status)) {
      ::poll(nullptr, 0, kPorterPauseMs);
      worker = start_work();
    }
    if (ended == desk) {
      ::poll(nullptr, 0, kPorterPauseMs);
      desk = start_desk();
    }
  }
}

}  // namespace carrel::oci
