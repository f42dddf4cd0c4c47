#include "guest/program.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/file_worker.h"
#include "guest/gvisor.h"
#include "guest/processes.h"
#include "guest/relays.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

using protocol::Start;
using protocol::StringList;

constexpr std::size_t kMaxStrings = 2 * protocol::kMaxArguments + 2;
constexpr int kIdleRelaysMs = 30'000;
constexpr int kFewPassed = 4;    // report, three streams
constexpr int kMostPassed = 10;  // six more for a shell
// What is asked for goes along with the descriptors, or, where it is longer, as a file after them.
constexpr std::size_t kLongestInline = 4096;

void tell(int report, ReportKind kind, std::uint32_t value) {
  Report message{kind, value, 0};
  write_whole(report, {reinterpret_cast<const char*>(&message), sizeof message});
}

std::size_t name_length(std::string_view variable) {
  std::size_t equals = variable.find('=');
  return equals == std::string_view::npos ? variable.size() : equals;
}

bool has_name(char* const* list, std::size_t count, std::string_view name, std::size_t& at) {
  for (at = 0; at < count; ++at) {
    std::string_view entry(list[at]);
    if (name_length(entry) == name.size() && entry.substr(0, name.size()) == name) {
      return true;
    }
  }
  return false;
}

// Appends the list's strings; with `replace`, a variable takes the place of one of its name.
std::size_t collect(const StringList& list, char** out, std::size_t count, bool replace) {
  const char* next = list.data.data();
  for (std::uint32_t i = 0; i < list.count; ++i) {
    std::string_view entry(next);
    std::size_t at = count;
    if (!replace || !has_name(out, count, entry.substr(0, name_length(entry)), at)) {
      at = count++;
    }
    out[at] = const_cast<char*>(next);
    next += entry.size() + 1;
  }
  out[count] = nullptr;
  return count;
}

std::string_view path_variable(char* const* environment) {
  for (; *environment != nullptr; ++environment) {
    std::string_view entry(*environment);
    if (entry.substr(0, 5) == "PATH=") {
      return entry.substr(5);
    }
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

// As execvpe does it, with the same order of errors: "permission denied" wins over "not found". A
// file that is no binary and has no interpreter line is given to the shell.
int execute(char** arguments, char** environment) {
  auto attempt = [&](const char* path) {
    execve(path, arguments, environment);
    if (errno == ENOEXEC) {
      static char* script[kMaxStrings + 2];
      script[0] = const_cast<char*>("sh");
      script[1] = const_cast<char*>(path);
      std::size_t i = 1;
      for (; arguments[i] != nullptr; ++i) {
        script[i + 1] = arguments[i];
      }
      script[i + 1] = nullptr;
      execve("/bin/sh", script, environment);
    }
    return errno;
  };
  std::string_view program(arguments[0]);
  if (program.empty()) {
    return ENOENT;
  }
  if (program.find('/') != std::string_view::npos) {
    return attempt(arguments[0]);
  }
  int result = ENOENT;
  std::string_view path = path_variable(environment);
  for (;;) {
    std::size_t colon = path.find(':');
    Path candidate;
    std::string_view part = path.substr(0, colon);
    candidate.add(part.empty() ? "." : part).add("/").add(program);
    int error = attempt(candidate.c_str());
    if (error == EACCES) {
      result = EACCES;
    } else if (error != ENOENT && error != ENOTDIR) {
      return error;
    }
    if (colon == std::string_view::npos) {
      return result;
    }
    path.remove_prefix(colon + 1);
  }
}

int keep_above_streams(int fd) { return fd < 0 || fd > 2 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3); }

// The command's descriptors become exactly the ones it is meant to have.
bool place_descriptors(const Start& start, const ProgramIo& io) {
  int input = keep_above_streams(io.input);
  int output = keep_above_streams(io.output);
  int error = keep_above_streams(io.error);
  if ((start.flags & protocol::kStartTerminal) != 0 && ioctl(input, TIOCSCTTY, 0) != 0) {
    return false;
  }
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(error, 2) < 0) {
    return false;
  }
  if (io.control < 0) {
    return true;
  }
  return dup2(io.wake, kShellWake) >= 0 && dup2(io.text, kShellText) >= 0 &&
         dup2(io.control, kShellControl) >= 0 && dup2(io.directory, kShellDirectory) >= 0 &&
         dup2(io.lasting[0], kShellOutput) >= 0 && dup2(io.lasting[1], kShellError) >= 0;
}

// The sandbox's own work dir is made if it is absent; one that a command asks for is not.
bool enter_workdir(const protocol::Boot& boot, const Start& start) {
  Path path;
  path.add(start.workdir.empty() ? boot.workdir : start.workdir);
  if (chdir(path.c_str()) == 0) {
    return true;
  }
  if (errno != ENOENT || !start.workdir.empty()) {
    return false;
  }
  for (std::size_t at = 1; at < boot.workdir.size(); ++at) {
    if (boot.workdir[at] == '/') {
      Path above;
      mkdir(above.add({boot.workdir.data(), at}).c_str(), 0755);
    }
  }
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return false;
  }
  return chdir(path.c_str()) == 0;
}

}  // namespace

[[noreturn]] void run_program(const protocol::Boot& boot, const Start& start, const ProgramIo& io,
                              int report) {
  static char* arguments[kMaxStrings];
  static char* environment[kMaxStrings];
  collect(start.arguments, arguments, 0, false);
  std::size_t count = collect(boot.environment, environment, 0, false);
  collect(start.environment, environment, count, true);

  // gVisor sends SIGHUP to a process group whenever one of its members ends while another is
  // stopped, unless somebody in its session is outside of it: a pause or a snapshot would end
  // programs. Where there is a terminal, its session has to be the program's own.
  const bool of_guest =
      kernel_of(boot) == Kernel::kGvisors && (start.flags & protocol::kStartTerminal) == 0;
  if (of_guest) {
    setpgid(0, 0);
  } else {
    setsid();
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  if (!place_descriptors(start, io)) {
    tell(report, ReportKind::kNotStarted, static_cast<std::uint32_t>(errno));
    _exit(126);
  }
  const bool relays = start.kind == protocol::StartKind::kRelays;
  if (!relays && !enter_workdir(boot, start)) {
    tell(report, ReportKind::kNoWorkdir, static_cast<std::uint32_t>(errno));
    _exit(126);
  }
  // The report pipe moves to 3 and everything above goes, but for a shell's own six.
  int last = report;
  if (report != 3) {
    if (dup2(report, 3) < 0) {
      tell(report, ReportKind::kNotStarted, static_cast<std::uint32_t>(errno));
      _exit(126);
    }
    fcntl(3, F_SETFD, FD_CLOEXEC);
    last = 3;
  }
  // CRITICAL: a descriptor of the guest's would be a way to it.
  int closed = io.control < 0 ? close_from(4) : close_between(4, kShellOutput - 1);
  if (closed == 0 && io.control >= 0) {
    closed = close_from(kShellDirectory + 1);
  }
  if (closed == 0 && start.kind == protocol::StartKind::kFiles) {
    close(last);
    serve_files(boot.workdir);
  }
  if (closed == 0 && relays) {
    close(last);
    serve_relays(STDIN_FILENO, kIdleRelaysMs);
  }
  int error = closed != 0 ? -closed : execute(arguments, environment);
  tell(last, ReportKind::kNotStarted, static_cast<std::uint32_t>(error));
  _exit(error == ENOENT ? 127 : 126);
}

namespace {

struct ProgramWork {
  const protocol::Boot& boot;
  const Start& start;
  const ProgramIo& io;
  int report;
};

int become_program(void* given) {
  const ProgramWork& work = *static_cast<const ProgramWork*>(given);
  run_program(work.boot, work.start, work.io, work.report);
}

// Both share the memory until the program is executed, and this process waits for that: it spares
// the copy. Who works with files or carries connections executes nothing.
pid_t start_program(ProgramWork work) {
  alignas(64) static char stack[64U << 10];
  const bool executes = work.start.kind == protocol::StartKind::kExec ||
                        work.start.kind == protocol::StartKind::kShell;
  const int sharing = executes ? CLONE_VM | CLONE_VFORK : 0;
  return clone(become_program, stack + sizeof stack, sharing | SIGCHLD, &work);
}

// Above one command: starts it, tells how it ends, and stays as the reaper of what it left behind
// until nothing is left.
[[noreturn]] void run_minder(const protocol::Boot& boot, const Start& start, const ProgramIo& io,
                             int report) {
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  signal(SIGCHLD, SIG_DFL);
  const pid_t program = start_program({boot, start, io, report});
  if (program < 0) {
    tell(report, ReportKind::kNotStarted, static_cast<std::uint32_t>(errno));
    _exit(1);
  }
  Report started{ReportKind::kStarted, static_cast<std::uint32_t>(program),
                 static_cast<std::uint32_t>(getpid())};
  write_whole(report, {reinterpret_cast<const char*>(&started), sizeof started});
  for (int fd : {io.input, io.output, io.error, io.wake, io.text, io.control, io.directory,
                 io.lasting[0], io.lasting[1]}) {
    if (fd >= 0) {
      close(fd);
    }
  }
  for (;;) {
    int status = 0;
    pid_t ended = waitpid(-1, &status, 0);
    if (ended == program) {
      tell(report, ReportKind::kEnded, static_cast<std::uint32_t>(status));
      close(report);
      // Whoever was told goes first, also on the same processor: to end takes longer than to
      // answer.
      const struct timespec moment{0, 50'000};
      nanosleep(&moment, nullptr);
    } else if (ended < 0 && errno == ECHILD) {
      _exit(0);
    }
  }
}

void on_minder(int /*signal*/) {
  int interrupted = errno;
  continue_stopped_children();
  errno = interrupted;
}

// Minders that end are reaped by the kernel, and those that somebody stopped go on at once.
void watch_minders() {
  struct sigaction action{};
  action.sa_handler = on_minder;
  action.sa_flags = SA_NOCLDWAIT | SA_RESTART;
  sigaction(SIGCHLD, &action, nullptr);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_UNBLOCK, &children, nullptr);
}

struct Request {
  int descriptors[kMostPassed + 1];
  int count = 0;
  char text[kLongestInline];
  std::size_t size = 0;  // zero: the last descriptor has it

  [[nodiscard]] int streams() const { return count - (size == 0 ? 1 : 0); }
};

bool receive(int socket, Request& request) {
  struct iovec data{request.text, sizeof request.text};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof request.descriptors)];
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  struct cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return false;
  }
  request.size = n > 1 ? static_cast<std::size_t>(n) : 0;
  request.count = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(request.descriptors, CMSG_DATA(header),
         static_cast<std::size_t>(request.count) * sizeof(int));
  return request.streams() == kFewPassed || request.streams() == kMostPassed;
}

// What is asked for. It is written to while it is read.
class Order {
 public:
  explicit Order(Request& request) : data_(request.text), size_(request.size) {
    if (size_ > 0) {
      return;
    }
    const int file = request.descriptors[request.count - 1];
    struct stat info{};
    fstat(file, &info);
    size_ = static_cast<std::size_t>(info.st_size);
    mapped_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    data_ = static_cast<char*>(mapped_);
  }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  ~Order() {
    if (mapped_ != nullptr && mapped_ != MAP_FAILED) {
      munmap(mapped_, size_);
    }
  }
  bool parse(Start& start) const {
    return mapped_ != MAP_FAILED && protocol::parse_start({data_, size_}, start);
  }

 private:
  void* mapped_ = nullptr;
  char* data_;
  std::size_t size_;
};

void serve_request(const protocol::Boot& boot, int socket, Request& request) {
  const int* fds = request.descriptors;
  const int report = fds[0];
  const Order order(request);
  Start start;
  if (!order.parse(start)) {
    tell(report, ReportKind::kNotStarted, EBADMSG);
    return;
  }
  const pid_t minder = fork();
  if (minder == 0) {
    close(socket);
    if (request.size == 0) {
      close(fds[request.count - 1]);
    }
    ProgramIo io{fds[1], fds[2], fds[3]};
    if (request.streams() == kMostPassed) {
      io.wake = fds[4];
      io.text = fds[5];
      io.control = fds[6];
      io.directory = fds[7];
      io.lasting[0] = fds[8];
      io.lasting[1] = fds[9];
    }
    run_minder(boot, start, io, report);
  }
  if (minder < 0) {
    tell(report, ReportKind::kNotStarted, static_cast<std::uint32_t>(errno));
  }
}

// A file with the text; a negative errno.
int text_file(std::string_view text) {
  const int file = memfd_create("start", MFD_CLOEXEC);
  if (file >= 0 && !write_whole(file, text)) {
    const int reason = -errno;
    close(file);
    return reason;
  }
  return file < 0 ? -errno : file;
}

}  // namespace

[[noreturn]] void run_spawner(const protocol::Boot& boot, int socket) {
  watch_minders();
  Request request;
  while (receive(socket, request)) {
    serve_request(boot, socket, request);
    for (int i = 0; i < request.count; ++i) {
      close(request.descriptors[i]);
    }
  }
  _exit(0);
}

int ask_spawner(int socket, std::string_view payload, const ProgramIo& io, int report) {
  int fds[kMostPassed + 1] = {report,  io.input,   io.output,    io.error,      io.wake,
                              io.text, io.control, io.directory, io.lasting[0], io.lasting[1]};
  std::size_t count = io.control < 0 ? kFewPassed : kMostPassed;
  int file = -1;
  char byte = 0;
  struct iovec data{const_cast<char*>(payload.data()), payload.size()};
  if (payload.size() <= 1 || payload.size() > kLongestInline) {
    file = text_file(payload);
    if (file < 0) {
      return file;
    }
    fds[count++] = file;
    data = {&byte, 1};
  }
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = static_cast<socklen_t>(CMSG_SPACE(count * sizeof(int)));
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = static_cast<socklen_t>(CMSG_LEN(count * sizeof(int)));
  memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  // Somebody may have stopped the spawner: the guest never waits for it.
  ssize_t n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  int result = n >= 0 ? 0 : errno == EAGAIN ? -EBUSY : -errno;
  if (file >= 0) {
    close(file);
  }
  return result;
}

}  // namespace carrel::guest
