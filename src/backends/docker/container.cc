#include "backends/docker/container.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

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

Error unsupported(std::string message) {
  return Error{Code::kUnsupported, 0, std::move(message), "use --backend native"};
}

// What is shown of the host, by its path, and whether it can be written to.
class Shown {
 public:
  explicit Shown(Exists exists) : exists_(exists) {}

  Status add(const std::string& path, bool writable) {
    for (const char* reserved : kReserved) {
      if (path == reserved || policy::path_holds(reserved, path)) {
        return unsupported("a container cannot show '" + path + "' of the host");
      }
    }
    if (!valid_utf8(path) || !path.starts_with('/') || path == "/") {
      return unsupported("a container cannot show a path of the host that is not UTF-8, or '/'");
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

Json security_of(const std::vector<std::string>& engines) {
  // The guest has a filter of its own, and a stricter one. Both labels would forbid it to mount.
  Json options = {"no-new-privileges", "seccomp=unconfined"};
  if (has(engines, "name=apparmor")) {
    options.push_back("apparmor=unconfined");
  }
  if (has(engines, "name=selinux")) {
    options.push_back("label=disable");
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
  const std::uint64_t memory = limits.memory_bytes + kOwnMemory;
  return {
      {"AutoRemove", true},  // CRITICAL: it goes when its guest ends, whoever is left to see that
      {"RestartPolicy", {{"Name", "no"}}},
      {"LogConfig", {{"Type", "none"}}},
      {"Runtime", terms.runtime},
      {"Privileged", false},
      {"CapAdd", none},
      {"CapDrop", {"ALL"}},
      {"SecurityOpt", security_of(terms.security)},
      {"ReadonlyRootfs", true},
      {"NetworkMode", "none"},
      {"IpcMode", "private"},
      {"PidMode", ""},
      {"UTSMode", ""},
      {"CgroupnsMode", "private"},
      {"UsernsMode", has(terms.security, "name=userns") ? "host" : ""},
      // The guest makes a proc of its own and hides the same in it. The kernel allows that only
      // where nothing of the first one is hidden, and nobody but the guest ever sees that.
      {"MaskedPaths", none},
      {"ReadonlyPaths", none},
      {"Memory", memory},
      {"MemorySwap", memory},
      {"PidsLimit", limits.pids + kOwnProcesses},
      {"NanoCpus", cpus * 1'000'000},
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

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value == 0) ||
         ((value.is_string() || value.is_array() || value.is_object()) &&
          (value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty()));
}

// What was asked for, as an engine tells it again: it may have added keys, and tells nothing in
// several ways.
bool same(const Json& asked, const Json& found) {
  if (is_empty(asked) || is_empty(found)) {
    return is_empty(asked) && is_empty(found);
  }
  if (asked.is_object()) {
    for (const auto& [key, value] : asked.items()) {
      const auto other = found.is_object() ? found.find(key) : found.end();
      if (!same(value, found.is_object() && other != found.end() ? *other : Json())) {
        return false;
      }
    }
    return found.is_object();
  }
  if (asked.is_array()) {
    return found.is_array() && asked.size() == found.size() &&
           std::equal(asked.begin(), asked.end(), found.begin(), same);
  }
  return asked == found;
}

Json member(const Json& object, const std::string& key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : Json();
}

Error differs(const std::string& setting) {
  return Error{
      Code::kUnsupported, 0,
      "Failed to create sandbox: cannot rely on these walls: the Docker engine did not keep "
      "to what it was asked for: " +
          setting,
      "run 'carrel doctor'"};
}

// What is mounted in the end: nothing less, nothing more.
Status compare_mounts(const Json& asked, const Json& found) {
  std::map<std::string, Json> left;
  for (const Json& mount : asked) {
    left[mount["Target"].get<std::string>()] = mount;
  }
  if (!found.is_array()) {
    return differs("Mounts");
  }
  for (const Json& mount : found) {
    const Json target = member(mount, "Destination");
    const auto meant = target.is_string() ? left.find(target.get<std::string>()) : left.end();
    if (meant == left.end() || member(mount, "Type") != "bind" ||
        member(mount, "Source") != meant->second["Source"] ||
        member(mount, "RW") != Json(!meant->second["ReadOnly"].get<bool>())) {
      return differs("Mounts " + (target.is_string() ? target.get<std::string>() : std::string()));
    }
    left.erase(meant);
  }
  return left.empty() ? Status() : differs("Mounts " + left.begin()->first);
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
  Json mounts = {mount_of(terms.program, kProgram, false),
                 mount_of(terms.door, guest::kDoor, false)};
  for (const auto& [path, writable] : shown.paths()) {
    mounts.push_back(mount_of(path, path, writable));
  }
  const std::string user = std::to_string(terms.user) + ":" + std::to_string(terms.group);
  return Json{{"Image", terms.image},
              {"Entrypoint", {kProgram}},
              {"Cmd", {"contained"}},
              {"User", user},
              {"WorkingDir", "/"},
              {"Hostname", "carrel"},
              {"Env", Json::array()},
              {"Tty", false},
              {"OpenStdin", false},
              {"NetworkDisabled", true},
              {"Volumes", Json::object()},
              {"StopSignal", "SIGKILL"},
              {"Labels", {{kInstallationLabel, request.installation}, {kSandboxLabel, request.id}}},
              {"HostConfig", host_config(request, terms, std::move(mounts))}};
}

Status compare(const Json& asked, const Json& found) {
  const Json host = member(found, "HostConfig");
  for (const auto& [key, value] : asked["HostConfig"].items()) {
    if (!same(value, member(host, key))) {
      return differs("HostConfig." + key);
    }
  }
  const Json config = member(found, "Config");
  for (const char* key : {"User", "Entrypoint", "Cmd", "Tty", "OpenStdin", "Volumes", "Labels"}) {
    if (!same(asked[key], member(config, key))) {
      return differs(std::string("Config.") + key);
    }
  }
  return compare_mounts(asked["HostConfig"]["Mounts"], member(found, "Mounts"));
}

}  // namespace carrel::docker
