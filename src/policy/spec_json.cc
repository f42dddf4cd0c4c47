#include "policy/spec_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/utf8.h"

namespace carrel::policy {

namespace {

using Json = nlohmann::ordered_json;

// A value that is not UTF-8 travels as an array of bytes: JSON has no other place for it.
Json text_to_bytes(const std::string& text) {
  Json bytes = Json::array();
  for (char c : text) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return bytes;
}

std::string bytes_to_text(const Json& bytes) {
  std::string text;
  for (const Json& byte : bytes) {
    text += static_cast<char>(byte.get<std::uint8_t>());
  }
  return text;
}

Json required_to_json(const std::vector<Protection>& required) {
  Json list = Json::array();
  for (Protection protection : required) {
    list.push_back(static_cast<int>(protection));
  }
  return list;
}

// Host paths have any bytes.
Json path_to_json(const std::string& path) {
  return valid_utf8(path) ? Json(path) : text_to_bytes(path);
}

std::string path_from_json(const Json& path) {
  return path.is_array() ? bytes_to_text(path) : path.get<std::string>();
}

Json paths_to_json(const std::vector<std::string>& paths) {
  Json list = Json::array();
  for (const std::string& path : paths) {
    list.push_back(path_to_json(path));
  }
  return list;
}

std::vector<std::string> paths_from_json(const Json& list) {
  std::vector<std::string> paths;
  for (const Json& path : list) {
    paths.push_back(path_from_json(path));
  }
  return paths;
}

void write_mounts(Json& object, const Spec& spec) {
  if (spec.mount_grants.by == MountGrants::By::kLists) {
    object["allowed_read_paths"] = paths_to_json(spec.mount_grants.read_paths);
    object["allowed_write_paths"] = paths_to_json(spec.mount_grants.write_paths);
  }
  Json mounts = Json::array();
  for (const Mount& mount : spec.mounts) {
    mounts.push_back({{"source", path_to_json(mount.source)},
                      {"target", mount.target},
                      {"readonly", mount.mode == MountMode::kReadOnly}});
  }
  object["mounts"] = mounts;
}

// A description from before there were mounts has none.
void read_mounts(const Json& object, Spec& spec) {
  if (object.contains("allowed_read_paths")) {
    spec.mount_grants.by = MountGrants::By::kLists;
    spec.mount_grants.read_paths = paths_from_json(object.at("allowed_read_paths"));
    spec.mount_grants.write_paths = paths_from_json(object.at("allowed_write_paths"));
  }
  for (const Json& mount : object.contains("mounts") ? object.at("mounts") : Json::array()) {
    spec.mounts.push_back(
        {path_from_json(mount.at("source")), mount.at("target").get<std::string>(),
         mount.at("readonly").get<bool>() ? MountMode::kReadOnly : MountMode::kReadWrite});
  }
}

Json services_to_json(const std::vector<Service>& services) {
  Json list = Json::array();
  for (const Service& service : services) {
    Json words = Json::array();
    for (const std::string& word : service.arguments) {
      words.push_back(path_to_json(word));
    }
    Json probe = Json::array();
    for (const std::string& word : service.ready_command) {
      probe.push_back(path_to_json(word));
    }
    list.push_back({{"name", service.name},
                    {"arguments", words},
                    {"ready_port", service.ready_port},
                    {"ready_command", probe}});
  }
  return list;
}

std::vector<Service> services_from_json(const Json& list) {
  std::vector<Service> services;
  for (const Json& one : list) {
    services.push_back({one.at("name").get<std::string>(), paths_from_json(one.at("arguments")),
                        one.at("ready_port").get<std::uint16_t>(),
                        paths_from_json(one.at("ready_command"))});
  }
  return services;
}

// CRITICAL: walls that this version does not know are not to be taken for others.
Status read_backend(const Json& object, Spec& spec) {
  const std::string name = object.value("backend", std::string(name_of(spec.backend)));
  const std::optional<Backend> backend = backend_named(name);
  if (!backend.has_value()) {
    return Error{Code::kUnsupported, 0, "this version has no backend '" + name + "'", {}};
  }
  spec.backend = *backend;
  spec.runtime = object.value("runtime", "");
  spec.engine = object.value("engine", "");
  spec.backend_choice = BackendChoice::kNamed;
  if (const std::string wanted = object.value("isolation", ""); !wanted.empty()) {
    spec.isolation = strength_named(wanted);
    if (!spec.isolation.has_value()) {
      return Error{Code::kUnsupported, 0, "this version has no isolation '" + wanted + "'", {}};
    }
  }
  return {};
}

// A description from before there were policies has no network.
Status read_network(const Json& object, Spec& spec) {
  if (object.contains("network")) {
    CARREL_ASSIGN(spec.network, network_from_json(object.at("network").dump()));
  }
  return {};
}

Result<Spec> read(const Json& object) {
  Spec spec;
  CARREL_TRY(read_backend(object, spec));
  CARREL_TRY(read_network(object, spec));
  spec.limits.memory_bytes = object.at("memory").get<std::uint64_t>();
  spec.limits.cpu_millis = object.at("cpu_millis").get<std::uint32_t>();
  spec.limits.pids = object.at("pids").get<std::uint32_t>();
  spec.limits.disk_bytes = object.at("disk").get<std::uint64_t>();
  spec.limits.tmp_bytes = object.at("tmp").get<std::uint64_t>();
  spec.limits.open_files = object.at("open_files").get<std::uint32_t>();
  spec.limits.timeout = std::chrono::milliseconds(object.at("timeout_ms").get<std::int64_t>());
  spec.root_mode =
      object.at("writable_root").get<bool>() ? RootMode::kThrowawayOverlay : RootMode::kReadOnly;
  spec.image = object.at("image").get<std::string>();
  spec.image_name = object.value("image_name", "");
  spec.workspace = object.value("workspace", "");
  spec.workspace_use =
      object.value("share_workspace", false) ? WorkspaceUse::kShared : WorkspaceUse::kAlone;
  spec.workdir = object.at("workdir").get<std::string>();
  spec.user = object.at("user").get<std::string>();
  spec.user_id = object.value("user_id", spec.user_id);
  spec.group_id = object.value("group_id", spec.group_id);
  spec.hostname = object.at("hostname").get<std::string>();
  spec.cgroup_parent = object.at("cgroup_parent").get<std::string>();
  for (const Json& variable : object.at("env")) {
    const Json& value = variable.at(1);
    spec.environment.push_back({variable.at(0).get<std::string>(), value.is_array()
                                                                       ? bytes_to_text(value)
                                                                       : value.get<std::string>()});
  }
  const int on_idle = object.value("on_idle", 0);
  if (on_idle >= 0 && on_idle <= static_cast<int>(OnIdle::kRemove)) {
    spec.on_idle = static_cast<OnIdle>(on_idle);
  }
  spec.idle_timeout = std::chrono::milliseconds(
      object.value("idle_timeout_ms", std::int64_t{spec.idle_timeout.count()}));
  spec.on_failure = object.value("recreate", false) ? OnFailure::kRecreate : OnFailure::kNothing;
  if (object.contains("services")) {
    spec.services = services_from_json(object.at("services"));
  }
  read_mounts(object, spec);
  for (const Json& protection : object.at("require")) {
    int value = protection.get<int>();
    if (value >= 0 && value <= static_cast<int>(Protection::kLandlock)) {
      spec.required.push_back(static_cast<Protection>(value));
    }
  }
  return spec;
}

}  // namespace

std::string spec_to_json(const Spec& spec, Values values) {
  Json object;
  object["backend"] = name_of(spec.backend);
  if (!spec.runtime.empty()) {
    object["runtime"] = spec.runtime;
  }
  if (!spec.engine.empty()) {
    object["engine"] = spec.engine;
  }
  if (spec.isolation.has_value()) {
    object["isolation"] = name_of(*spec.isolation);
  }
  object["memory"] = spec.limits.memory_bytes;
  object["cpu_millis"] = spec.limits.cpu_millis;
  object["pids"] = spec.limits.pids;
  object["disk"] = spec.limits.disk_bytes;
  object["tmp"] = spec.limits.tmp_bytes;
  object["open_files"] = spec.limits.open_files;
  object["timeout_ms"] = spec.limits.timeout.count();
  object["writable_root"] = spec.root_mode == RootMode::kThrowawayOverlay;
  object["image"] = spec.image;
  if (!spec.image_name.empty()) {
    object["image_name"] = spec.image_name;
  }
  if (!spec.workspace.empty()) {
    object["workspace"] = spec.workspace;
    object["share_workspace"] = spec.workspace_use == WorkspaceUse::kShared;
  }
  object["network"] = Json::parse(network_to_json(spec.network));
  object["workdir"] = spec.workdir;
  object["user"] = spec.user;
  object["user_id"] = spec.user_id;
  object["group_id"] = spec.group_id;
  object["hostname"] = spec.hostname;
  object["cgroup_parent"] = spec.cgroup_parent;
  Json variables = Json::array();
  for (const EnvironmentVariable& variable : spec.environment) {
    Json value = valid_utf8(variable.value) ? Json(variable.value) : text_to_bytes(variable.value);
    variables.push_back(
        Json::array({variable.name, values == Values::kIncluded ? value : Json("")}));
  }
  object["env"] = variables;
  object["require"] = required_to_json(spec.required);
  if (spec.on_idle != OnIdle::kNothing) {
    object["on_idle"] = static_cast<int>(spec.on_idle);
    object["idle_timeout_ms"] = spec.idle_timeout.count();
  }
  if (spec.on_failure == OnFailure::kRecreate) {
    object["recreate"] = true;
  }
  if (!spec.services.empty()) {
    object["services"] = services_to_json(spec.services);
  }
  write_mounts(object, spec);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Spec> spec_from_json(std::string_view text) {
  try {
    return read(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    return Error{
        Code::kInvalid, 0, std::string("a sandbox's description is damaged: ") + error.what(), {}};
  }
}

}  // namespace carrel::policy
