#include "storage/images/builder.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

#include "base/files.h"
#include "base/unique_fd.h"
#include "storage/images/build_debian.h"
#include "storage/images/builder_room.h"

namespace carrel::storage {

namespace {

std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/bin/"}) {
    if (::access((folder + name).c_str(), X_OK) == 0) {
      return folder + name;
    }
  }
  return {};
}

struct IdRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// The range that /etc/subuid or /etc/subgid gives the user; of several the largest.
IdRange range_of(const char* file, const std::string& user) {
  const auto text = read_file_at(AT_FDCWD, file);
  std::istringstream lines(text.ok() ? text.value() : "");
  IdRange largest;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    IdRange range;
    char colon = 0;
    if (std::getline(words, name, ':') && (name == user || name == std::to_string(::getuid())) &&
        words >> range.first >> colon >> range.count && colon == ':' &&
        range.count > largest.count) {
      largest = range;
    }
  }
  largest.count = std::min(largest.count, kBuilderIds);
  return largest;
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::getuid());
  return entry == nullptr ? std::to_string(::getuid()) : entry->pw_name;
}

// What an ordinary user needs for ids other than his own.
Status check_subordinate_ids() {
  if (find_program("newuidmap").empty() || find_program("newgidmap").empty()) {
    return Error{Code::kUnavailable, 0, "building needs newuidmap, which is not installed",
                 "apt install uidmap"};
  }
  const std::string user = user_name();
  if (range_of("/etc/subuid", user).count == 0 || range_of("/etc/subgid", user).count == 0) {
    return Error{
        Code::kUnsupported, 0, "'" + user + "' has no subordinate ids to build with",
        "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + user};
  }
  return {};
}

// The child and its ends of the pipes; killed, by a signal after which it cleans up, if it is left.
class BuilderProcess {
 public:
  explicit BuilderProcess(pid_t pid) : pid_(pid) {}
  ~BuilderProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      (void)wait();
    }
  }
  BuilderProcess(const BuilderProcess&) = delete;
  BuilderProcess& operator=(const BuilderProcess&) = delete;

  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

// Has one of the programs that may give an ordinary user's namespace his subordinate ids do it. The
// user himself is in it, too, as the id after them: the directory of the build is his at first.
Status map_for_user(const char* program, pid_t child, const IdRange& range, std::uint32_t own) {
  const std::string path = find_program(program);
  std::vector<std::string> words = {path,
                                    std::to_string(child),
                                    "0",
                                    std::to_string(range.first),
                                    std::to_string(range.count),
                                    std::to_string(range.count),
                                    std::to_string(own),
                                    "1"};
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  char* environment[] = {nullptr};
  pid_t pid = -1;
  int status = -1;
  if (::posix_spawn(&pid, path.c_str(), nullptr, nullptr, arguments.data(), &environment[0]) == 0) {
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return status == 0 ? Status()
                     : Error{Code::kUnsupported,
                             0,
                             std::string(program) + " did not give the builder its ids",
                             {}};
}

Status map_ids(pid_t child) {
  if (::geteuid() != 0) {
    const std::string user = user_name();
    CARREL_TRY(map_for_user("newuidmap", child, range_of("/etc/subuid", user), ::getuid()));
    return map_for_user("newgidmap", child, range_of("/etc/subgid", user), ::getgid());
  }
  const std::string map =
      "0 " + std::to_string(kFirstBuilderId) + " " + std::to_string(kBuilderIds) + "\n";
  const std::string process = "/proc/" + std::to_string(child) + "/";
  for (const char* file : {"uid_map", "gid_map"}) {
    if (auto written = write_value_at(AT_FDCWD, process + file, map); !written.ok()) {
      return Error{Code::kUnsupported,
                   written.error().error_number,
                   "give the builder ids that own nothing",
                   {}};
    }
  }
  return {};
}

// Waits until the child is in its user namespace, and gives that its ids.
Status give_ids(pid_t child, const UniqueFd& handshake) {
  char byte = 0;
  if (::read(handshake.get(), &byte, 1) != 1) {
    return Error{Code::kUnsupported, 0, "this host does not give a user namespace to build in", {}};
  }
  CARREL_TRY(map_ids(child));
  if (::send(handshake.get(), &byte, 1, MSG_NOSIGNAL) != 1) {
    return system_error("start the builder");
  }
  return {};
}

// Reads what it says until it ends; returns the first complaint.
std::string listen(int fd, const BuilderRun& run) {
  constexpr std::size_t kLongestLine = 1000;
  std::string complaint;
  std::string line;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t size = ::read(fd, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size <= 0) {
      return complaint;
    }
    for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(size))) {
      if (c != '\n' && c != '\r') {
        line += line.size() < kLongestLine ? std::string(1, c < ' ' ? '?' : c) : "";
        continue;
      }
      // The first one is apt's or dpkg's own; what follows tells which of the steps it was.
      if (line.starts_with("E: ") && complaint.empty()) {
        complaint = line.substr(3);
      } else if (line.starts_with("I: ")) {
        run.listener(line.substr(3));
      }
      line.clear();
    }
  }
}

}  // namespace

Result<std::string> find_builder() {
  std::string program = find_program("mmdebstrap");
  if (program.empty()) {
    return Error{Code::kUnavailable, 0, "building needs mmdebstrap, which is not installed",
                 "apt install mmdebstrap"};
  }
  if (::geteuid() != 0) {
    CARREL_TRY(check_subordinate_ids());
  }
  return program;
}

Status run_builder(const std::string& program, const BuilderRun& run) {
  CARREL_ASSIGN(const UniqueFd input, open_at(AT_FDCWD, "/dev/null", O_RDONLY));
  int ends[2] = {-1, -1};
  if (::pipe2(&ends[0], O_CLOEXEC) != 0) {
    return system_error("start the builder");
  }
  UniqueFd errors(ends[0]);
  UniqueFd errors_end(ends[1]);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, &ends[0]) != 0) {
    return system_error("start the builder");
  }
  UniqueFd handshake(ends[0]);
  UniqueFd handshake_end(ends[1]);
  BuilderRoomPlan plan;
  plan.program = program;
  plan.arguments = run.arguments;
  plan.arguments.insert(plan.arguments.begin(), program);
  plan.environment = run.environment;
  plan.place = run.place;
  plan.trees = run.trees;
  plan.input = input.get();
  plan.output = run.output;
  plan.errors = errors_end.get();
  plan.handshake = handshake_end.get();
  const pid_t pid = ::fork();
  if (pid < 0) {
    return system_error("start the builder");
  }
  if (pid == 0) {
    errors.reset();
    handshake.reset();
    run_in_builder_room(plan);
  }
  BuilderProcess process(pid);
  errors_end.reset();
  handshake_end.reset();
  CARREL_TRY(give_ids(pid, handshake));
  const std::string complaint = listen(errors.get(), run);
  if (process.wait() != 0) {
    return Error{Code::kUnavailable,
                 0,
                 "mmdebstrap failed" + (complaint.empty() ? "" : ": " + complaint),
                 {}};
  }
  return {};
}

}  // namespace carrel::storage
