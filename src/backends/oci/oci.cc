#include "backends/oci/oci.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "backends/oci/bundle.h"
#include "backends/oci/porch.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

// Not by the caller's PATH: whoever can change that could put another program in its place.
constexpr std::array kFolders = {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/",
                                 "/usr/bin/",        "/sbin/",          "/bin/"};
constexpr std::array kRuntimes = {"runc", "crun"};
constexpr int kStartMs = 10'000;

Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

std::optional<std::string> path_of(const std::string& runtime) {
  for (const char* folder : kFolders) {
    if (std::string path = folder + runtime; ::access(path.c_str(), X_OK) == 0) {
      return path;
    }
  }
  return std::nullopt;
}

struct Runtime {
  std::string name;
  std::string path;
};

// The one that is named, or the first that is there.
Result<Runtime> find_runtime(const std::string& name) {
  for (const char* candidate : kRuntimes) {
    if (name.empty() || name == candidate) {
      if (std::optional<std::string> path = path_of(candidate); path.has_value()) {
        return Runtime{candidate, std::move(*path)};
      }
    }
  }
  return name.empty() ? unsupported("there is no OCI runtime", "install 'runc' or 'crun'")
                      : unsupported("the runtime '" + name + "' is not installed",
                                    "install the package '" + name + "'");
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Directories of the host that are covered for the runtime: nothing that it needs is below them.
Result<std::vector<std::string>> find_stages(const sandbox::RoomRequest& request) {
  std::vector<std::string> needed;
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    needed.push_back(tree.path);
  }
  for (const std::string_view part : {request.plan.shared, request.plan.own}) {
    protocol::PlanReader steps(part);
    for (protocol::MountStep step; steps.next(step);) {
      if (step.kind == protocol::StepKind::kBind || step.kind == protocol::StepKind::kOverlay) {
        needed.emplace_back(step.source);
      }
    }
  }
  std::vector<std::string> stages;
  for (const std::string candidate : {"/mnt", "/media", "/srv", "/opt", "/home", "/var", "/tmp"}) {
    struct stat info{};
    const bool free = std::none_of(needed.begin(), needed.end(), [&](const std::string& path) {
      return (path + "/").starts_with(candidate + "/");
    });
    if (free && ::lstat(candidate.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      stages.push_back(candidate);
    }
  }
  constexpr std::size_t kNeeded = 2;
  if (stages.size() < kNeeded) {
    return unsupported("there is no directory such as /mnt that a runtime's bundle can cover", {});
  }
  return stages;
}

// "runc version 1.1.5+ds1 commit: …" becomes "runc 1.1.5+ds1".
std::string version_in(const std::string& name, const std::string& text) {
  constexpr std::string_view kWord = "version ";
  const std::size_t at = text.find(kWord);
  const std::string rest = at == std::string::npos ? "" : text.substr(at + kWord.size());
  return rest.empty() ? name : name + " " + rest.substr(0, rest.find(' '));
}

std::vector<std::string> command_of(const Runtime& runtime, const Places& places) {
  std::vector<std::string> words = {runtime.path, "--root", places.state()};
  if (runtime.name == "crun") {
    words.emplace_back("--cgroup-manager=disabled");  // its groups are made already
  }
  words.insert(words.end(), {"run", "--bundle", places.bundle(), "--detach", "--no-new-keyring",
                             "--preserve-fds", "2", "--pid-file", places.state() + "/pid", "room"});
  return words;
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

sandbox::Building Runtimes::building() const {
  constexpr std::uint64_t kMemory = 256ULL << 20;
  constexpr std::uint32_t kProcesses = 64;  // a runtime in Go has threads
  return {kMemory, kProcesses};
}

Result<std::string> Runtimes::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Runtime runtime, find_runtime(spec.runtime));
  CARREL_ASSIGN(const std::string text, sandbox::ask_version(runtime.path));
  return version_in(runtime.name, text);
}

// It has everything that a native one has.
Status Runtimes::check(const policy::Spec&) const { return {}; }

Result<sandbox::RoomStarted> Runtimes::start(const sandbox::RoomRequest& request) const {
  CARREL_ASSIGN(const Runtime runtime, find_runtime(request.runtime));
  CARREL_ASSIGN(const std::vector<std::string> stages, find_stages(request));
  kernel::ProgramRequest program;
  program.staging = stages[1];
  Places places;
  places.stage = stages[0];
  PorchRequest porch;
  std::vector<int> trees;
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    if (tree.mount < 0) {
      places.sources.push_back(tree.path);
      continue;
    }
    using Kind = kernel::ProgramRequest::PlacedMount::Kind;
    const bool file = tree.kind == sandbox::RoomRequest::Tree::Kind::kFile;
    if (!request.host_id.has_value()) {  // only the porch can mount
      places.sources.push_back(places.tree(trees.size()));
      trees.push_back(tree.mount);
      porch.trees.emplace_back(file ? kFile : kFolder);
      continue;
    }
    places.sources.push_back(kernel::place_of_mount(program, program.mounts.size()));
    program.mounts.push_back({tree.mount, file ? Kind::kFile : Kind::kFolder});
  }
  CARREL_ASSIGN(Bundle bundle, bundle_for(request, places, exists));
  porch.stage = places.stage;
  porch.config = std::move(bundle.config);
  porch.data = std::move(bundle.data);
  porch.shared = request.plan.shared;
  porch.alike = request.plan.alike;
  porch.own = request.plan.own;
  porch.runtime = command_of(runtime, places);
  CARREL_ASSIGN(const UniqueFd asked, sandbox::memory_file(encode_porch(porch)));
  CARREL_ASSIGN(UniqueFd complaints, sandbox::memory_file({}));
  int ends[2] = {-1, -1};
  if (::pipe2(&ends[0], O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd told(ends[0]);
  UniqueFd tell(ends[1]);
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "porch"};
  program.descriptors = {request.control, request.image, asked.get(), tell.get()};
  program.descriptors.insert(program.descriptors.end(), trees.begin(), trees.end());
  program.errors = complaints.get();
  program.group = request.group;
  program.join = request.join;
  program.id = request.host_id;
  CARREL_ASSIGN(kernel::Program started, kernel::start_program(program));
  tell.reset();
  sandbox::RoomStarted room;
  room.guest = read_pid(told.get());
  room.guest_process.reset(
      room.guest > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, room.guest, 0)) : -1);
  if (!room.guest_process.valid()) {
    ::kill(started.pid, SIGKILL);
  }
  while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!room.guest_process.valid()) {
    const std::string why = sandbox::read_line(complaints.get());
    return unsupported("Failed to create sandbox: " + runtime.name + ": " +
                           (why.empty() ? std::string("it did not answer") : why),
                       "run 'carrel doctor'");
  }
  room.complaints = std::move(complaints);
  return room;
}

}  // namespace carrel::oci
