#include "backends/docker/container.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "backends/docker/comparison.h"
#include "backends/docker/layout.h"
#include "base/utf8.h"
#include "guest/contained.h"
#include "policy/mount_paths.h"
#include "sandbox/builder.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using protocol::MountStep;
using protocol::StepKind;

// Beside the workload there are the guest, its helpers and the container's first process.
constexpr std::uint64_t kOwnMemory = 128ULL << 20;
constexpr std::uint32_t kOwnProcesses = 16;

// Places of the container that are its own.
constexpr std::array kReserved = {"/proc", "/sys", "/dev", "/carrel"};

Error not_in_container(std::string message) {
  return Error{Code::kUnsupported, 0, std::move(message), "use --backend native"};
}

// What is shown of the host, by its path, and whether it can be written to.
class Shown {
 public:
  explicit Shown(Exists exists) : exists_(exists) {}

  Status add(const std::string& path, bool writable) {
    for (const char* reserved : kReserved) {
      if (path == reserved || policy::path_holds(reserved, path)) {
        return not_in_container("a container cannot show '" + path + "' of the host");
      }
    }
    if (!valid_utf8(path) || !path.starts_with('/') || path == "/") {
      return not_in_container(
          "a container cannot show a path of the host that is not UTF-8, or '/'");
    }
    paths_[path] = paths_[path] || writable;
    return {};
  }

  Status follow(std::string_view part, const std::string& image) {
    return sandbox::follow_plan(part, [&](const MountStep& step) -> Status {
      const std::string source(step.source);
      if ((step.kind != StepKind::kBind && step.kind != StepKind::kOverlay) ||
          (!image.empty() && (source == image || policy::path_holds(image, source))) ||
          ((step.flags & protocol::kStepOptional) != 0 && !exists_(source))) {
        return {};
      }
      return add(source, false);
    });
  }

  [[nodiscard]] const std::map<std::string, bool>& paths() const { return paths_; }

 private:
  Exists exists_;
  std::map<std::string, bool> paths_;
};

// How mounts of the host's propagate is left to the engine, which makes a difference where its own
// data are; to the guest's room nothing propagates.
Json mount_of(const std::string& source, const std::string& target, bool writable) {
  return {{"Type", "bind"}, {"Source", source}, {"Target", target}, {"ReadOnly", !writable}};
}

bool has(const std::vector<std::string>& options, std::string_view name) {
  return std::any_of(options.begin(), options.end(), [&](const std::string& option) {
    return option == name || option.starts_with(std::string(name) + ",");
  });
}

Json security_of(const std::vector<std::string>& engines, EngineKind kind) {
  // The guest has a filter of its own, and a stricter one. Both labels would forbid it to mount.
  Json options = {"no-new-privileges", "seccomp=unconfined"};
  if (has(engines, "name=apparmor")) {
    options.push_back("apparmor=unconfined");
  }
  if (has(engines, "name=selinux")) {
    options.push_back("label=disable");
  }
  if (kind == EngineKind::kPodman) {
    options.push_back(kUnmasked);
  }
  return options;
}

Json host_config(const sandbox::RoomRequest& request, const ContainerTerms& terms, Json mounts) {
  const Json none = Json::array();
  const policy::Limits& limits = request.limits;
  std::uint64_t cpus = limits.cpu_millis;
  if (terms.cpus != 0) {
    cpus = std::min<std::uint64_t>(cpus, terms.cpus * 1000ULL);
  }
  // CRITICAL: what is left out here is nobody's but the guest's to hold, and told so.
  const std::uint64_t memory = terms.limits.memory ? limits.memory_bytes + kOwnMemory : 0;
  const std::uint64_t processes = terms.limits.pids ? limits.pids + kOwnProcesses : 0;
  Json ulimits = none;
  std::string users = has(terms.security, "name=userns") ? "host" : "";
  if (terms.kind == EngineKind::kPodman) {
    // Its own are higher than it may set everywhere. The guest's are lower than these.
    for (const auto& [name, most] :
         {std::pair("nofile", terms.open_files), std::pair("nproc", terms.processes)}) {
      ulimits.push_back({{"Name", name}, {"Soft", most}, {"Hard", most}});
    }
    users = has(terms.security, "name=rootless") ? "keep-id" : "";  // his id is his inside, too
  }
  return {
      {"AutoRemove", true},  // CRITICAL: it goes when its guest ends, whoever is left to see that
      {"RestartPolicy", {{"Name", "no"}}},
      {"LogConfig", {{"Type", "none"}}},
      {"Runtime", terms.runtime},
      {"Privileged", false},
      {"CapAdd", terms.ids == Ids::kOwnersRoot ? Json::array({"SETFCAP"}) : none},
      {"CapDrop", {"ALL"}},
      {"SecurityOpt", security_of(terms.security, terms.kind)},
      {"ReadonlyRootfs", true},
      {"NetworkMode", "none"},
      {"IpcMode", "private"},
      {"PidMode", ""},
      {"UTSMode", ""},
      {"CgroupnsMode", "private"},
      {"UsernsMode", users},
      {"Ulimits", ulimits},
      // The guest makes a proc of its own and hides the same in it. The kernel allows that only
      // where nothing of the first one is hidden, and nobody but the guest ever sees that.
      {"MaskedPaths", none},
      {"ReadonlyPaths", none},
      {"Memory", memory},
      {"MemorySwap", memory},
      {"PidsLimit", processes},
      {"NanoCpus", terms.limits.cpu ? cpus * 1'000'000 : 0},
      {"Mounts", std::move(mounts)},
      {"Binds", none},
      {"Tmpfs", Json::object()},
      {"VolumesFrom", none},
      {"Devices", none},
      {"DeviceCgroupRules", none},
      {"DeviceRequests", none},
      {"GroupAdd", none},
      {"Sysctls", Json::object()},
      {"Links", none},
      {"PortBindings", Json::object()},
      {"PublishAllPorts", false}};
}

}  // namespace

Result<Json> container_for(const sandbox::RoomRequest& request, const ContainerTerms& terms,
                           Exists exists) {
  Shown shown(exists);
  if (!request.image_folder.empty()) {
    CARREL_TRY(shown.add(request.image_folder, false));
  }
  for (const std::string_view part : {request.plan.shared, request.plan.alike, request.plan.own}) {
    CARREL_TRY(shown.follow(part, request.image_folder));
    // The trees that the guest finds by their path, which it compares with what it was given.
    CARREL_TRY(sandbox::follow_plan(part, [&](const MountStep& step) -> Status {
      return step.kind == StepKind::kTree && !step.source.empty()
                 ? shown.add(std::string(step.source), (step.flags & protocol::kStepReadOnly) == 0)
                 : Status();
    }));
  }
  Json mounts = Json::array({mount_of(terms.program, kProgram, false)});
  if (terms.way == WayIn::kDoor) {
    mounts.push_back(mount_of(terms.door, guest::kDoor, false));
  }
  for (const auto& [path, writable] : shown.paths()) {
    mounts.push_back(mount_of(path, path, writable));
  }
  const std::string user = std::to_string(terms.user) + ":" + std::to_string(terms.group);
  const bool line = terms.way == WayIn::kLine;
  const char* const contained =
      terms.ids == Ids::kOwnersRoot ? guest::kContainedByOwner : guest::kContained;
  return Json{
      {"Image", terms.image},
      {"Entrypoint", {kProgram}},
      {"Cmd", {line ? guest::kContainedAway : contained}},
      {"User", user},
      {"WorkingDir", "/"},
      {"Hostname", "carrel"},
      {"Env", Json::array()},
      {"Tty", false},
      {"OpenStdin", line},
      // CRITICAL: the first process learns from the end of its input that nobody is there any more.
      {"StdinOnce", line},
      // A machine is given a namespace with nothing in it.
      {"NetworkDisabled", !line},
      {"Volumes", Json::object()},
      {"StopSignal", "SIGKILL"},
      {"Labels", {{kInstallationLabel, request.installation}, {kSandboxLabel, request.id}}},
      {"HostConfig", host_config(request, terms, std::move(mounts))}};
}

Result<Json> furnished_container(const sandbox::RoomRequest& request, const ContainerTerms& terms,
                                 const Layout& layout, const std::string& place) {
  // Of gVisor's kernel itself, and what each task inside takes of the host.
  constexpr std::uint64_t kKernelMemory = 256ULL << 20;
  constexpr std::uint64_t kKernelTasks = 256;
  constexpr std::uint64_t kTasksForEach = 24;
  Json mounts = {mount_of(terms.program, kProgram, false),
                 mount_of(terms.door, guest::kDoor, false)};
  for (const Layout::Mount& mount : layout.mounts) {
    if (!valid_utf8(mount.source) || !mount.target.starts_with('/')) {
      return not_in_container("a container cannot show a path of the host that is not UTF-8");
    }
    mounts.push_back(mount_of(mount.made ? place + "/" + mount.source : mount.source, mount.target,
                              mount.writable));
  }
  Json host = host_config(request, terms, std::move(mounts));
  for (const Layout::Memory& memory : layout.memory) {
    host["Tmpfs"][memory.target] = memory.options;
  }
  host["SecurityOpt"] = {"no-new-privileges"};
  if (terms.user == 0) {
    host["CapAdd"] = {"CHOWN", "SETFCAP"};
  }
  host["Memory"] = host["MemorySwap"] = request.limits.memory_bytes + kKernelMemory;
  host["PidsLimit"] = request.limits.pids * kTasksForEach + kKernelTasks;
  const std::string user = std::to_string(terms.user) + ":" + std::to_string(terms.group);
  return Json{{"Image", terms.image},
              {"Entrypoint", {kProgram}},
              {"Cmd", {guest::kContainedByGvisor}},
              {"User", user},
              {"WorkingDir", "/"},
              {"Hostname", request.hostname},
              {"Env", Json::array()},
              {"Tty", false},
              {"OpenStdin", false},
              {"NetworkDisabled", false},  // gVisor wants a namespace with nothing in it
              {"Volumes", Json::object()},
              {"StopSignal", "SIGKILL"},
              {"Labels", {{kInstallationLabel, request.installation}, {kSandboxLabel, request.id}}},
              {"HostConfig", std::move(host)}};
}

}  // namespace carrel::docker
