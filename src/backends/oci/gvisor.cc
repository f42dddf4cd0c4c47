#include "backends/oci/gvisor.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/oci/room.h"
#include "sandbox/builder.h"

namespace carrel::oci {

namespace {

constexpr char kName[] = "runsc";

Result<Runtime> find_runtime() {
  std::optional<Runtime> found = runtime_named(kName);
  return found.has_value() ? Result<Runtime>(std::move(*found)) : not_installed(kName);
}

// "runsc version release-20221219.0 spec: 1.0.2-dev" becomes "20221219.0".
std::string version_in(std::string_view text) {
  constexpr std::string_view kWord = "version ";
  const std::size_t at = text.find(kWord);
  if (at == std::string_view::npos) {
    return {};
  }
  text.remove_prefix(at + kWord.size());
  for (const std::string_view prefix : {"release-", "0.0~"}) {
    if (text.starts_with(prefix)) {
      text.remove_prefix(prefix.size());
    }
  }
  return std::string(text.substr(0, text.find(' ')));
}

// How it takes the system calls of programs: the better of those that need nothing of the host.
// A virtual machine's, kvm, is not among them: /dev/kvm is not everybody's.
Result<std::string> platform_of(const Runtime& runtime) {
  CARREL_ASSIGN(const std::string text, sandbox::ask_flags(runtime.path));
  constexpr std::string_view kFlag = "-platform string";
  const std::size_t at = text.find(kFlag);
  if (at == std::string::npos) {
    return unsupported(runtime.path + " does not tell its platforms", {});
  }
  constexpr std::size_t kLine = 200;
  const std::string_view about = std::string_view(text).substr(at, kLine);
  for (const char* name : {"systrap", "ptrace"}) {
    if (about.find(name) != std::string_view::npos) {
      return std::string(name);
    }
  }
  return unsupported(runtime.path + " has neither the platform systrap nor ptrace", {});
}

std::vector<std::string> command_of(const Runtime& runtime, const Places& places,
                                    const GvisorWays& ways) {
  return {runtime.path,
          "--root",
          places.state(),
          "--platform=" + ways.platform,
          "--network=" + ways.network,
          "--rootless",        // it is the root of the porch's user namespace
          "--ignore-cgroups",  // its groups are made already
          "--overlay2=none",
          "--host-uds=none",
          "--file-access-mounts=shared",  // the host reads and snapshots them, too
          "run",
          "--bundle",
          places.bundle(),
          "--detach",
          "--pid-file",
          places.state() + "/pid",
          "room"};
}

}  // namespace

// Its threads and those of its file server, and what starts them.
std::uint32_t Gvisor::own_processes() const {
  constexpr std::uint32_t kThreads = 256;
  return kThreads;
}

std::uint64_t Gvisor::own_memory() const {
  constexpr std::uint64_t kOwn = 256ULL << 20;
  return kOwn;
}

// Each has a thread of gVisor's kernel and, with ptrace, a process of several that execute its
// code.
std::uint32_t Gvisor::tasks_for_each() const {
  constexpr std::uint32_t kTasks = 24;
  return kTasks;
}

Result<std::string> Gvisor::describe(const policy::Spec&) const {
  CARREL_ASSIGN(const Runtime runtime, find_runtime());
  CARREL_ASSIGN(const std::string text, sandbox::ask_version(runtime.path));
  const std::string version = version_in(text);
  if (version.empty()) {
    return unsupported(runtime.path + " does not tell its version: '" + text + "'", {});
  }
  CARREL_ASSIGN(const std::string platform, platform_of(runtime));
  return kName + std::string(" ") + version + " (platform " + platform + ")";
}

// Those of 2022 know no AT_NO_AUTOMOUNT.
std::string Gvisor::warning(const policy::Spec& spec) const {
  auto builder = describe(spec);
  if (!builder.ok() || !builder.value().starts_with("runsc 2022")) {
    return {};
  }
  return *builder +
         ": 'ls' and 'stat' of coreutils 9 do not work behind it; newer releases of "
         "gVisor have what they need";
}

Status Gvisor::check(const policy::Spec& spec) const {
  if (spec.root_mode != policy::RootMode::kReadOnly) {
    return unsupported("the root of a sandbox behind gVisor is read-only",
                       "leave out --writable-root");
  }
  return {};
}

Result<sandbox::RoomStarted> Gvisor::start(const sandbox::RoomRequest& request) const {
  Builder builder;
  builder.dialect = Dialect::kGvisors;
  builder.command = command_of;
  CARREL_ASSIGN(builder.runtime, find_runtime());
  CARREL_ASSIGN(builder.ways.platform, platform_of(builder.runtime));
  // Its sockets are the host's kernel's, in the captive network that the porch has made: its own
  // network would know nothing of that one's rules.
  builder.ways.network = request.captive.empty() ? "none" : "host";
  return start_room(request, builder);
}

}  // namespace carrel::oci
