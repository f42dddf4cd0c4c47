#include "backends/bubblewrap/bubblewrap.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "backends/bubblewrap/arguments.h"
#include "kernel/program.h"
#include "policy/known_flaws.h"
#include "sandbox/builder.h"

namespace carrel::bubblewrap {

namespace {

// Not by the caller's PATH: whoever can change that could put another program in its place.
constexpr std::array kPlaces = {"/usr/local/bin/bwrap", "/usr/bin/bwrap", "/bin/bwrap"};
constexpr char kName[] = "bwrap";
constexpr char kStaging[] = "/sys";
constexpr int kStartMs = 10'000;
// The first that can forbid user namespaces inside.
constexpr policy::Version kOldest{{0, 8, 0}};

Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

Result<std::string> find_program() {
  for (const char* place : kPlaces) {
    if (::access(place, X_OK) == 0) {
      return std::string(place);
    }
  }
  return unsupported("bubblewrap is not installed", "install the package 'bubblewrap'");
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void end(pid_t pid) {
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// The number after `"child-pid":` of what bubblewrap tells; zero: it did not.
pid_t child_in(std::string_view info) {
  constexpr std::string_view kKey = "\"child-pid\":";
  const std::size_t at = info.find(kKey);
  if (at == std::string_view::npos) {
    return 0;
  }
  const std::size_t digits = info.find_first_not_of(' ', at + kKey.size());
  pid_t pid = 0;
  if (digits != std::string_view::npos) {
    std::from_chars(info.data() + digits, info.data() + info.size(), pid);
  }
  return pid;
}

// What bubblewrap tells of its child when it has one; it closes the pipe in any case.
std::string read_info(int pipe) {
  std::string info;
  std::array<char, 512> buffer{};
  while (info.find('}') == std::string::npos && info.size() < buffer.size()) {
    pollfd told{pipe, POLLIN, 0};
    const int ready = ::poll(&told, 1, kStartMs);
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    const ssize_t n = ready == 1 ? ::read(pipe, buffer.data(), buffer.size()) : 0;
    if (n <= 0) {
      break;
    }
    info.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return info;
}

}  // namespace

Result<std::string> Bubblewrap::describe(const policy::Spec&) const {
  CARREL_ASSIGN(const std::string program, find_program());
  CARREL_ASSIGN(std::string text, sandbox::ask_version(program));
  const std::optional<policy::Version> version = policy::parse_version(text);
  if (!version.has_value()) {
    return unsupported(program + " does not tell its version: '" + text + "'", {});
  }
  if (*version < kOldest) {
    return unsupported(text + " is too old: it cannot forbid user namespaces inside",
                       "0.8.0 or later is needed");
  }
  return text;
}

std::string Bubblewrap::warning(const policy::Spec& spec) const {
  const Result<std::string> builder = describe(spec);
  const Result<std::string> program = find_program();
  struct stat info{};
  if (!builder.ok() || !program.ok() || ::stat(program.value().c_str(), &info) != 0) {
    return {};
  }
  return policy::flaw_warning({builder.value(), (info.st_mode & S_ISUID) != 0
                                                    ? policy::Builder::Rights::kSetUid
                                                    : policy::Builder::Rights::kCallers});
}

Status Bubblewrap::check(const policy::Spec& spec) const {
  if (spec.root_mode != policy::RootMode::kReadOnly) {
    return unsupported("the root of a sandbox of the backend 'bubblewrap' is read-only",
                       "leave out --writable-root, or use --backend native");
  }
  return {};
}

Result<sandbox::RoomStarted> Bubblewrap::start(const sandbox::RoomRequest& request) const {
  kernel::ProgramRequest program;
  CARREL_ASSIGN(program.path, find_program());
  program.staging = kStaging;
  std::vector<std::string> sources;
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    if (tree.mount < 0) {
      sources.push_back(tree.path);
      continue;
    }
    if (!request.host_id.has_value()) {
      return unsupported("bubblewrap cannot show '" + tree.path +
                             "', which is made of layers, for an ordinary user",
                         "use --backend native or oci");
    }
    using Kind = kernel::ProgramRequest::PlacedMount::Kind;
    const bool file = tree.kind == sandbox::RoomRequest::Tree::Kind::kFile;
    sources.push_back(kernel::place_of_mount(program, program.mounts.size()));
    program.mounts.push_back({tree.mount, file ? Kind::kFile : Kind::kFolder});
  }
  CARREL_ASSIGN(Arguments arguments, arguments_for(request, sources, exists));
  std::string packed;
  for (const std::string& word : arguments.words) {
    packed.append(word.c_str(), word.size() + 1);
  }
  CARREL_ASSIGN(const UniqueFd words, sandbox::memory_file(packed));
  CARREL_ASSIGN(const UniqueFd filter, sandbox::memory_file(request.filter));
  CARREL_ASSIGN(UniqueFd complaints, sandbox::memory_file({}));
  int info[2] = {-1, -1};
  if (::pipe2(&info[0], O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd told(info[0]);
  UniqueFd tell(info[1]);
  program.descriptors = {request.control, request.image, filter.get(),
                         tell.get(),      told.get(),    words.get()};
  std::vector<UniqueFd> files;
  for (const std::string& content : arguments.data) {
    CARREL_ASSIGN(UniqueFd file, sandbox::memory_file(content));
    program.descriptors.push_back(file.get());
    files.push_back(std::move(file));
  }
  program.arguments = {kName, "--args", std::to_string(kArguments),
                       "/proc/self/fd/" + std::to_string(kImage), sandbox::kFurnished};
  program.errors = complaints.get();
  program.group = request.group;
  program.join = request.join;
  program.id = request.host_id;
  CARREL_ASSIGN(kernel::Program started, kernel::start_program(program));
  tell.reset();
  sandbox::RoomStarted room;
  room.child = started.pid;
  room.guest = child_in(read_info(told.get()));
  // It is not another's: bubblewrap, which has not ended, has not waited for it.
  room.guest_process.reset(
      room.guest > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, room.guest, 0)) : -1);
  if (!room.guest_process.valid()) {
    end(started.pid);
    const std::string why = sandbox::read_line(complaints.get());
    return unsupported("Failed to create sandbox: " +
                           (why.empty() ? std::string("bubblewrap ended at once") : why),
                       "run 'carrel doctor'");
  }
  room.complaints = std::move(complaints);
  return room;
}

}  // namespace carrel::bubblewrap
