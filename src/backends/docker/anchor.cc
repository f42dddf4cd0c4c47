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
#include <charconv>
#include <csignal>
#include <utility>

#include "backends/docker/engine.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::docker {

namespace {

// Its descriptors.
constexpr int kRequest = 3;    // "engine\ncontainer\n"
constexpr int kTell = 4;       // its number
constexpr int kContainer = 5;  // the container's first process
constexpr int kListener = 6;   // if there is one
constexpr int kDoorEnd = 7;

constexpr int kStartMs = 5'000;
constexpr int kWaiting = 64;
constexpr int kPauseMs = 100;
constexpr std::size_t kLargestRequest = 8192;
constexpr char kCovered[] = "/tmp";

Status write_own(const char* path, const std::string& text) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_WRONLY));
  return write_all(file.get(), text);
}

// Whoever looks for the sandbox's files at this process finds none of the host's.
Status leave_host() {
  if (::mount("tmpfs", kCovered, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
              "size=4k,mode=0555") != 0 ||
      ::chroot(kCovered) != 0 || ::chdir("/") != 0) {
    return system_error("leave the host's root");
  }
  return {};
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
  ::close(kRequest);
  ::close(kTell);
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

Status hold() {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, "/proc/self/fd/3", kLargestRequest));
  const std::size_t end = text.find('\n');
  const std::string address = text.substr(0, end);
  const std::string container = text.substr(end + 1, text.find('\n', end + 1) - end - 1);
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
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
  CARREL_TRY(write_all(kTell, std::to_string(child) + "\n"));
  // CRITICAL: the guest sees the end of its door only when nobody has the other end.
  ::syscall(SYS_close_range, kTell, ~0U, 0);
  ::setsid();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return engine.remove(container);
}

pid_t read_pid(int pipe) {
  std::array<char, 32> buffer{};
  pollfd told{pipe, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&told, 1, kStartMs);
  } while (ready < 0 && errno == EINTR);
  const ssize_t n = ready == 1 ? ::read(pipe, buffer.data(), buffer.size()) : 0;
  pid_t pid = 0;
  if (n > 0) {
    std::from_chars(buffer.data(), buffer.data() + n, pid);
  }
  return pid;
}

}  // namespace

Result<Anchor> start_anchor(const sandbox::RoomRequest& request, const std::string& engine,
                            const std::string& container, pid_t first_process) {
  Anchor anchor;
  const UniqueFd first(static_cast<int>(::syscall(SYS_pidfd_open, first_process, 0)));
  std::array<int, 2> tell{};
  std::array<int, 2> door{-1, -1};
  if (!first.valid() || ::pipe2(tell.data(), O_CLOEXEC) != 0) {
    return Error{Code::kGone, 0, "Failed to create sandbox: its container ended", {}};
  }
  const UniqueFd told(tell[0]);
  UniqueFd teller(tell[1]);
  if (request.listener >= 0 &&
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, door.data()) != 0) {
    return system_error("make the sandbox's door");
  }
  UniqueFd own_end(door[0]);
  anchor.door.reset(door[1]);
  CARREL_ASSIGN(const UniqueFd asked, sandbox::memory_file(engine + "\n" + container + "\n"));
  CARREL_ASSIGN(const UniqueFd complaints, sandbox::memory_file({}));
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "porch", "docker"};
  program.descriptors = {asked.get(), teller.get(), first.get()};
  if (own_end.valid()) {
    program.descriptors.insert(program.descriptors.end(), {request.listener, own_end.get()});
  }
  program.errors = complaints.get();
  program.group = request.group;
  program.join = request.join;
  CARREL_ASSIGN(const kernel::Program started, kernel::start_program(program));
  teller.reset();
  own_end.reset();
  anchor.above = started.pid;
  anchor.pid = read_pid(told.get());
  anchor.process.reset(anchor.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, anchor.pid, 0))
                                      : -1);
  if (!anchor.process.valid()) {
    ::kill(started.pid, SIGKILL);
    while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    const std::string why = sandbox::read_line(complaints.get());
    return Error{Code::kUnsupported, 0,
                 "Failed to create sandbox: " +
                     (why.empty() ? std::string("what stands for it did not start") : why),
                 "run 'carrel doctor'"};
  }
  return anchor;
}

int run_anchor() {
  const Status held = hold();
  if (!held.ok()) {
    (void)write_all(STDERR_FILENO, held.error().to_string() + "\n");
  }
  return held.ok() ? 0 : 1;
}

}  // namespace carrel::docker
