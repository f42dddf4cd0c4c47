#include "backends/docker/ferry.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "backends/docker/attach_frames.h"
#include "backends/docker/engine.h"
#include "base/files.h"
#include "kernel/rights.h"
#include "kernel/seccomp.h"
#include "policy/syscalls.h"
#include "sandbox/porter.h"

namespace carrel::docker {

namespace {

// Its descriptors.
constexpr int kLine = kStandingFirst;
constexpr int kStream = kStandingFirst + 1;  // the maker's
constexpr int kSockets = kStandingFirst + 2;

constexpr char kYes[] = "yes";
constexpr char kNo[] = "no";
constexpr std::chrono::seconds kBoot{30};  // until the guest's side is heard
constexpr int kWaiting = 64;

long read_frames(void* self, int fd, char* out, std::size_t size) {
  return static_cast<AttachFrames*>(self)->read(fd, {out, size});
}

struct Sockets {
  int listener = -1;
  int network = -1;
};
Sockets sockets_of(const std::vector<std::string>& lines) {
  Sockets sockets;
  int next = kSockets;
  sockets.listener = lines[4] == kYes ? next++ : -1;
  sockets.network = lines[5] == kYes ? next : -1;
  return sockets;
}

Status listen_at(int socket) {
  return socket < 0 ||
                 (::listen(socket, kWaiting) == 0 && ::fcntl(socket, F_SETFL, O_NONBLOCK) == 0)
             ? Status()
             : system_error("listen for the sandbox");
}

// CRITICAL: before anything that comes from the container is read.
Status lock_in() {
  const kernel::SeccompProgram filter = kernel::compile(policy::connects_machine_syscalls());
  CARREL_TRY(kernel::drop_rights());
  const int reason = kernel::load_seccomp_child(filter.view());
  return reason == 0 ? Status() : system_error(reason, "load the filter of system calls");
}

const char* words_of(sandbox::PorterEnd end) {
  switch (end) {
    case sandbox::PorterEnd::kNeverBegan:
      return "its container ended before its guest began\n";
    case sandbox::PorterEnd::kTooSlow:
      return "the guest in its container did not begin in time\n";
    case sandbox::PorterEnd::kBroken:
      return "what came from its container is no trunk\n";
    case sandbox::PorterEnd::kEnded:
      break;
  }
  return "";
}

// The life of the one that stands, in its own namespaces. `go` tells that its id is mapped, and
// `ready` is told when it carries.
Status stand(const Sockets& sockets, UniqueFd go, UniqueFd ready) {
  char byte = 0;
  if (::read(go.get(), &byte, 1) != 1 || ::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0) {
    return system_error("take the sandbox's id");
  }
  (void)::setgroups(0, nullptr);  // an ordinary user's cannot be given up
  go.reset();
  ::setsid();
  ::signal(SIGPIPE, SIG_IGN);
  ::close(kStandingRequest);
  ::close(kStandingTell);
  // CRITICAL: nothing that is mounted here may appear outside.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return system_error("make the mount tree private");
  }
  CARREL_TRY(leave_host());
  CARREL_TRY(listen_at(sockets.listener));
  CARREL_TRY(listen_at(sockets.network));
  AttachFrames frames;
  sandbox::PorterTerms terms;
  terms.line = UniqueFd(kLine);
  terms.reader = {read_frames, &frames};
  terms.stream = UniqueFd(kStream);
  terms.listener = UniqueFd(sockets.listener);
  terms.network = UniqueFd(sockets.network);
  terms.boot = kBoot;
  if (::fcntl(kLine, F_SETFL, O_NONBLOCK) != 0) {
    return system_error("prepare the line");
  }
  CARREL_TRY(lock_in());
  CARREL_TRY(write_all(ready.get(), "r"));
  ready.reset();
  (void)write_all(STDERR_FILENO, words_of(sandbox::carry(std::move(terms))));
  return {};
}

// The one id that the namespace of `child` has. Root gives it another than its own.
Status map_id(pid_t child, const std::string& id) {
  const std::string folder = "/proc/" + std::to_string(child);
  const auto write = [&](const char* name, const std::string& text) -> Status {
    CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, folder + name, O_WRONLY));
    return write_all(file.get(), text);
  };
  if (::geteuid() != 0) {
    CARREL_TRY(write("/setgroups", "deny"));
  }
  const std::string group = ::geteuid() != 0 ? std::to_string(::getegid()) : id;
  CARREL_TRY(write("/gid_map", "0 " + group + " 1"));
  return write("/uid_map", "0 " + id + " 1");
}

}  // namespace

Status be_ferry(const std::vector<std::string>& lines) {
  CARREL_ASSIGN(const Engine engine, Engine::at(lines[1]));
  const std::string& container = lines[2];
  std::array<int, 2> go{};
  std::array<int, 2> ready{};
  if (::pipe2(go.data(), O_CLOEXEC) != 0 || ::pipe2(ready.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd going(go[0]);
  UniqueFd goes(go[1]);
  UniqueFd is_ready(ready[0]);
  UniqueFd readies(ready[1]);
  constexpr unsigned long kNamespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  const auto child =
      static_cast<pid_t>(::syscall(SYS_clone, kNamespaces | SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) {
    goes.reset();
    is_ready.reset();
    const Status stood = stand(sockets_of(lines), std::move(going), std::move(readies));
    if (!stood.ok()) {
      (void)write_all(STDERR_FILENO, stood.error().to_string() + "\n");
    }
    ::_exit(stood.ok() ? 0 : 1);
  }
  if (child < 0) {
    return system_error("make namespaces for what stands for the sandbox");
  }
  readies.reset();
  const Status mapped = map_id(child, lines[3]);
  char byte = 0;
  if (!mapped.ok() || ::write(goes.get(), "g", 1) != 1 || ::read(is_ready.get(), &byte, 1) != 1) {
    ::kill(child, SIGKILL);
    return mapped.ok()
               ? Error{Code::kUnsupported, 0, "what stands for the sandbox did not start", {}}
               : mapped;
  }
  CARREL_TRY(write_all(kStandingTell, std::to_string(child) + "\n"));
  // CRITICAL: the line ends with the one that stands, and so nobody else may have it.
  ::syscall(SYS_close_range, kStandingTell, ~0U, 0);
  ::setsid();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return engine.remove(container);
}

Result<Standing> start_ferry(const sandbox::RoomRequest& request, const std::string& engine,
                             const std::string& container, int line) {
  std::vector<int> given = {line, request.control};
  for (const int socket : {request.listener, request.network}) {
    if (socket >= 0) {
      given.push_back(socket);
    }
  }
  const std::string id = std::to_string(request.host_id.value_or(::geteuid()));
  return start_standing(request,
                        {kFerryRole, engine, container, id, request.listener >= 0 ? kYes : kNo,
                         request.network >= 0 ? kYes : kNo},
                        given);
}

}  // namespace carrel::docker
