#include "storage/background.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "base/files.h"
#include "base/unix_socket.h"
#include "kernel/descriptors_child.h"

namespace carrel::storage {

namespace {

constexpr int kHighFd = 64;

// In the child: from here to exec nothing of the caller's is used but what is on its stack.
[[noreturn]] void become(const char* command, int ready, int started, const char* program,
                         const char* place, const char* runtime) {
  ::setsid();
  // Twice: the process must not be a child that the caller could wait for by mistake, nor the
  // leader of a session that could get a terminal.
  if (::fork() != 0) {
    ::_exit(0);
  }
  int high = ::fcntl(ready, F_DUPFD, kHighFd);
  int until_exec = ::fcntl(started, F_DUPFD, kHighFd);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (high < 0 || until_exec < 0 || null < 0 || ::chdir("/") != 0) {
    ::_exit(1);
  }
  for (int fd : {0, 1, 2}) {
    if (::dup2(null, fd) < 0) {
      ::_exit(1);
    }
  }
  if (::dup2(high, 3) < 0 || ::dup3(until_exec, 4, O_CLOEXEC) < 0) {
    ::_exit(1);
  }
  // No descriptor of the caller's goes along, and of its variables the place alone: the process
  // lives longer than both.
  if (kernel::close_descriptors(5, ~0U) != 0) {
    ::_exit(1);
  }
  const char* environment[] = {place, "PATH=/usr/bin:/bin", runtime, nullptr};
  ::execle("/proc/self/exe", program, command, static_cast<char*>(nullptr), environment);
  ::_exit(1);
}

std::string lock_name(const char* name) { return "run/" + std::string(name) + ".lock"; }

struct flock whole_file() {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return whole;
}

}  // namespace

Status start_in_background(const Home& home, const char* command, Readiness readiness) {
  const std::string name = "the " + std::string(command);
  std::array<int, 2> ready{};
  std::array<int, 2> started{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd read_end(ready[0]);
  UniqueFd write_end(ready[1]);
  if (::pipe2(started.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd started_end(started[0]);
  UniqueFd starting_end(started[1]);
  const std::string place = "CARREL_HOME=" + home.path();
  const char* directory = std::getenv("XDG_RUNTIME_DIR");  // where the user's service manager is
  const std::string runtime = std::string("XDG_RUNTIME_DIR=") + (directory ? directory : "");
  std::array<char, 4096> program{"carrel"};  // under its path it is found in a list of processes
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) {
    return system_error("find this program");
  }
  pid_t child = ::fork();
  if (child < 0) {
    return system_error("start " + name);
  }
  if (child == 0) {
    become(command, write_end.get(), starting_end.get(), program.data(), place.c_str(),
           directory == nullptr ? nullptr : runtime.c_str());
  }
  ::waitpid(child, nullptr, 0);
  write_end.reset();
  starting_end.reset();
  std::array<char, 512> text{};
  if (readiness == Readiness::kLater) {
    (void)!::read(started_end.get(), text.data(),
                  1);  // until it is no copy of this process any more
    return {};
  }
  pollfd wait{read_end.get(), POLLIN, 0};
  if (::poll(&wait, 1, 10'000) != 1) {
    return Error{Code::kTimeout, 0, name + " does not start", {}};
  }
  ssize_t n = ::read(read_end.get(), text.data(), text.size());
  if (n == 0) {
    return Error{Code::kGone, 0, name + " ended before it listened", "try again"};
  }
  if (n < 1 || text[0] != 'k') {
    return Error{Code::kSystem,
                 0,
                 name + " does not start: " +
                     std::string(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0),
                 {}};
  }
  return {};
}

Result<UniqueFd> connect_background(const Home& home, const char* name) {
  CARREL_ASSIGN(UniqueFd run, open_at(home.directory(), "run", O_PATH | O_DIRECTORY));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(run.get(), name);
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("reach the " + std::string(name));
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid()) {
    return Error{
        Code::kDenied, 0, "the " + std::string(name) + "'s socket belongs to another user", {}};
  }
  return socket;
}

Result<UniqueFd> reach_background(const Home& home, const char* name) {
  constexpr int kTries = 100;
  constexpr int kStepUs = 20'000;
  auto socket = connect_background(home, name);
  // One that is just leaving holds its lock a moment longer than its socket.
  for (int attempt = 0; !socket.ok() && attempt < kTries; ++attempt) {
    if (socket.error().code == Code::kDenied) {
      return socket.error();
    }
    if (attempt > 0) {
      ::usleep(kStepUs);
    }
    Status started = start_in_background(home, name);
    if (!started.ok() && started.error().code != Code::kGone) {
      return started.error();
    }
    socket = connect_background(home, name);
  }
  return socket;
}

// A lock of the open file description and not flock(): asking for its holder does not take it.
Result<UniqueFd> lock_background(const Home& home, const char* name) {
  CARREL_ASSIGN(UniqueFd file,
                open_at(home.directory(), lock_name(name), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  struct flock whole = whole_file();
  if (::fcntl(file.get(), F_OFD_SETLK, &whole) != 0) {
    return errno == EAGAIN || errno == EACCES
               ? Error{Code::kConflict, 0, "another " + std::string(name) + " is running", {}}
               : system_error("lock '" + lock_name(name) + "'");
  }
  return file;
}

bool background_is_alive(const Home& home, const char* name) {
  auto file = open_at(home.directory(), lock_name(name), O_RDONLY | O_NOFOLLOW);
  struct flock whole = whole_file();
  return file.ok() && ::fcntl(file.value().get(), F_OFD_GETLK, &whole) == 0 &&
         whole.l_type != F_UNLCK;
}

}  // namespace carrel::storage
