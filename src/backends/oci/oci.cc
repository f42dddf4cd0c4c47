#include "backends/oci/oci.h"

#include <unistd.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "backends/oci/room.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

constexpr std::array kRuntimes = {"runc", "crun"};
// crun gives up where control groups of both versions have controllers, even if it is to use none.
constexpr char kGroups[] = "/sys/fs/cgroup";
constexpr char kHybrid[] = "/sys/fs/cgroup/unified/cgroup.controllers";

// The one that is named, or the first that is there.
Result<Runtime> find_runtime(const std::string& name) {
  for (const char* candidate : kRuntimes) {
    if (name.empty() || name == candidate) {
      if (std::optional<Runtime> found = runtime_named(candidate); found.has_value()) {
        return std::move(*found);
      }
    }
  }
  return name.empty()
             ? Error{Code::kUnsupported, 0, "there is no OCI runtime", "install 'runc' or 'crun'"}
             : not_installed(name);
}

// "runc version 1.1.5+ds1 commit: …" becomes "runc 1.1.5+ds1".
std::string version_in(const std::string& name, const std::string& text) {
  constexpr std::string_view kWord = "version ";
  const std::size_t at = text.find(kWord);
  const std::string rest = at == std::string::npos ? "" : text.substr(at + kWord.size());
  return rest.empty() ? name : name + " " + rest.substr(0, rest.find(' '));
}

std::vector<std::string> runtime_command(const Runtime& runtime, const Places& places,
                                         const GvisorWays&) {
  std::vector<std::string> words = {runtime.path, "--root", places.state()};
  if (runtime.name == "crun") {
    words.emplace_back("--cgroup-manager=disabled");  // its groups are made already
  }
  words.insert(words.end(), {"run", "--bundle", places.bundle(), "--detach", "--no-new-keyring",
                             "--preserve-fds", "2", "--pid-file", places.state() + "/pid", "room"});
  return words;
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
  Builder builder;
  CARREL_ASSIGN(builder.runtime, find_runtime(request.runtime));
  builder.command = runtime_command;
  if (builder.runtime.name == "crun" && ::access(kHybrid, F_OK) == 0) {
    builder.covered = {kGroups};
  }
  return start_room(request, builder);
}

}  // namespace carrel::oci
