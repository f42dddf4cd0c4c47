#include "backends/docker/comparison.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

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

Json in_dockers_words(const Json& asked, Json found) {
  if (!found.is_object() || !member(found, "HostConfig").is_object()) {
    return found;
  }
  Json& host = found["HostConfig"];
  const auto reads = [&](const char* key, std::initializer_list<const char*> words) {
    const Json told = member(host, key);
    if (std::any_of(words.begin(), words.end(), [&](const char* word) { return told == word; })) {
      host[key] = asked["HostConfig"][key];
    }
  };
  // Its own words for a namespace of the container's. The host compares them with its own.
  reads("IpcMode", {"private", "shareable"});
  reads("PidMode", {"private"});
  reads("UTSMode", {"private"});
  reads("CgroupnsMode", {"", "private"});  // see check_apart()
  reads("UsernsMode", {"", "private", "keep-id"});
  reads("Runtime", {"oci"});  // it has one
  // All of them by their names, less what was added. The guest looks for any that is left.
  if (member(host, "CapDrop").is_array() && !host["CapDrop"].empty()) {
    host["CapDrop"] = asked["HostConfig"]["CapDrop"];
  }
  if (member(host, "SecurityOpt").is_array()) {
    host["SecurityOpt"].push_back(kUnmasked);  // without it the guest could not make its proc
  }
  // Mounts are told as binds; what is mounted in the end is compared one by one.
  host["Binds"] = Json::array();
  host["Mounts"] = asked["HostConfig"]["Mounts"];
  // Memory of its own beside a root that is read-only, which the workload never sees.
  Json& memory = host["Tmpfs"];
  for (const char* own : {"/run", "/tmp", "/var/tmp"}) {
    if (memory.is_object()) {
      memory.erase(own);
    }
  }
  // A rootless one tells of none. They are no wall: the guest sets its own.
  if (is_empty(member(host, "Ulimits"))) {
    host["Ulimits"] = asked["HostConfig"]["Ulimits"];
  }
  for (Json& limit : host["Ulimits"]) {
    const Json name = member(limit, "Name");
    if (name == "RLIMIT_NOFILE" || name == "RLIMIT_NPROC") {
      limit["Name"] = name == "RLIMIT_NOFILE" ? "nofile" : "nproc";
    }
  }
  return found;
}

Status compare(const Json& asked, const Json& found) {
  const Json host = member(found, "HostConfig");
  for (const auto& [key, value] : asked["HostConfig"].items()) {
    // Of a tmpfs more than was asked for is too much; everywhere else an engine may add keys.
    const bool more = key == "Tmpfs" && member(host, key).size() > value.size();
    if (more || !same(value, member(host, key))) {
      return differs("HostConfig." + key);
    }
  }
  const Json config = member(found, "Config");
  for (const char* key :
       {"User", "Entrypoint", "Cmd", "Tty", "OpenStdin", "StdinOnce", "Volumes", "Labels"}) {
    if (!same(member(asked, key), member(config, key))) {
      return differs(std::string("Config.") + key);
    }
  }
  return compare_mounts(asked["HostConfig"]["Mounts"], member(found, "Mounts"));
}

}  // namespace carrel::docker
