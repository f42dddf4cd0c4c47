#include "policy/spec_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_writer.h"
#include "base/utf8.h"

namespace carrel::policy {

namespace {

using Json = nlohmann::ordered_json;

// A text that is not UTF-8 travels as an array of bytes: JSON has no other place for it.
void write_bytes(JsonWriter& to, const std::string& text) {
  if (valid_utf8(text)) {
    to.value(text);
    return;
  }
  to.open_array();
  for (const char c : text) {
    to.value(static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  to.close_array();
}

std::string bytes_to_text(const Json& bytes) {
  std::string text;
  for (const Json& byte : bytes) {
    text += static_cast<char>(byte.get<std::uint8_t>());
  }
  return text;
}

// Host paths have any bytes.
std::string path_from_json(const Json& path) {
  return path.is_array() ? bytes_to_text(path) : path.get<std::string>();
}

void write_texts(JsonWriter& object, std::string_view name, const std::vector<std::string>& texts) {
  object.key(name).open_array();
  for (const std::string& text : texts) {
    write_bytes(object, text);
  }
  object.close_array();
}

std::vector<std::string> paths_from_json(const Json& list) {
  std::vector<std::string> paths;
  for (const Json& path : list) {
    paths.push_back(path_from_json(path));
  }
  return paths;
}

void write_mounts(JsonWriter& object, const Spec& spec) {
  if (spec.mount_grants.by == MountGrants::By::kLists) {
    write_texts(object, "allowed_read_paths", spec.mount_grants.read_paths);
    write_texts(object, "allowed_write_paths", spec.mount_grants.write_paths);
  }
  object.key("mounts").open_array();
  for (const Mount& mount : spec.mounts) {
    write_bytes(object.open_object().key("source"), mount.source);
    object.field("target", mount.target)
        .field("readonly", mount.mode == MountMode::kReadOnly)
        .close_object();
  }
  object.close_array();
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

void write_services(JsonWriter& object, const std::vector<Service>& services) {
  object.key("services").open_array();
  for (const Service& service : services) {
    object.open_object().field("name", service.name);
    write_texts(object, "arguments", service.arguments);
    object.field("ready_port", service.ready_port);
    write_texts(object, "ready_command", service.ready_command);
    object.close_object();
  }
  object.close_array();
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
  // Of a description that does not say: one that is no default was given.
  const bool given =
      spec.limits.timeout != kLongLivedTimeout && spec.limits.timeout != kOneShotTimeout;
  spec.timeout_choice =
      object.value("timeout_given", given) ? TimeoutChoice::kGiven : TimeoutChoice::kDefault;
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
  JsonWriter object;
  object.open_object().field("backend", name_of(spec.backend));
  const auto add_if_set = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) {
      object.field(name, text);
    }
  };
  add_if_set("runtime", spec.runtime);
  add_if_set("engine", spec.engine);
  if (spec.isolation.has_value()) {
    object.field("isolation", name_of(*spec.isolation));
  }
  object.field("memory", spec.limits.memory_bytes)
      .field("cpu_millis", spec.limits.cpu_millis)
      .field("pids", spec.limits.pids)
      .field("disk", spec.limits.disk_bytes)
      .field("tmp", spec.limits.tmp_bytes)
      .field("open_files", spec.limits.open_files)
      .field("timeout_ms", spec.limits.timeout.count())
      .field("writable_root", spec.root_mode == RootMode::kThrowawayOverlay)
      .field("image", spec.image);
  add_if_set("image_name", spec.image_name);
  if (!spec.workspace.empty()) {
    object.field("workspace", spec.workspace)
        .field("share_workspace", spec.workspace_use == WorkspaceUse::kShared);
  }
  object.key("network").json(network_to_json(spec.network));
  object.field("workdir", spec.workdir)
      .field("user", spec.user)
      .field("user_id", spec.user_id)
      .field("group_id", spec.group_id)
      .field("hostname", spec.hostname)
      .field("cgroup_parent", spec.cgroup_parent)
      .key("env")
      .open_array();
  for (const EnvironmentVariable& variable : spec.environment) {
    object.open_array().value(variable.name);
    write_bytes(object, values == Values::kIncluded ? variable.value : std::string());
    object.close_array();
  }
  object.close_array().key("require").open_array();
  for (const Protection protection : spec.required) {
    object.value(static_cast<int>(protection));
  }
  object.close_array();
  if (spec.on_idle != OnIdle::kNothing) {
    object.field("on_idle", static_cast<int>(spec.on_idle))
        .field("idle_timeout_ms", spec.idle_timeout.count());
  }
  if (spec.on_failure == OnFailure::kRecreate) {
    object.field("recreate", true);
  }
  if (spec.timeout_choice == TimeoutChoice::kGiven) {
    object.field("timeout_given", true);
  }
  if (!spec.services.empty()) {
    write_services(object, spec.services);
  }
  write_mounts(object, spec);
  object.close_object();
  return std::move(object).text();
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
