#include "policy/validate.h"

#include <string>

#include "policy/credential.h"
#include "policy/mount_paths.h"
#include "policy/mount_request.h"
#include "policy/names.h"
#include "policy/size.h"

namespace carrel::policy {
namespace {

Status check_limits(const Limits& limits) {
  const std::string memory = format_size(limits.memory_bytes);
  CARREL_TRY(check_memory({"memory", memory}, limits.memory_bytes));
  const std::string cpus = format_cpus(limits.cpu_millis);
  CARREL_TRY(check_cpus({"cpus", cpus}, limits.cpu_millis));
  const std::string pids = std::to_string(limits.pids);
  CARREL_TRY(check_pids({"pids", pids}, limits.pids));
  const std::string disk = format_size(limits.disk_bytes);
  CARREL_TRY(check_storage({"disk", disk}, limits.disk_bytes));
  const std::string tmp = format_size(limits.tmp_bytes);
  CARREL_TRY(check_storage({"tmp", tmp}, limits.tmp_bytes));
  const std::string timeout = format_duration(limits.timeout);
  return check_timeout({"timeout", timeout}, limits.timeout);
}

Status check_against_host(const Limits& limits, const HostFacts& host) {
  if (limits.memory_bytes > host.memory_bytes) {
    const std::string text = format_size(limits.memory_bytes);
    return bad_value({"memory", text}, concat({"more than this host has (",
                                               std::to_string(host.memory_bytes >> 20), "m)"}));
  }
  if (limits.cpu_millis > std::uint64_t{host.cpus} * 1000) {
    const std::string text = format_cpus(limits.cpu_millis);
    return bad_value({"cpus", text},
                     concat({"more than this host has (", std::to_string(host.cpus), ")"}));
  }
  return {};
}

Status check_image(const std::string& image) {
  constexpr std::string_view kDirectory = "dir:";
  if (image == "host") {
    return {};
  }
  if (!image.starts_with(kDirectory)) {
    return check_image_reference({"image", image});
  }
  CARREL_TRY(normalize_path({"image", std::string_view(image).substr(kDirectory.size())}));
  return {};
}

Status check_environment(const std::vector<EnvironmentVariable>& environment) {
  std::size_t total = 0;
  for (const EnvironmentVariable& variable : environment) {
    const std::string text = concat({variable.name, "=", variable.value});
    CARREL_ASSIGN(const EnvironmentVariable parsed, parse_variable({"env", text}));
    if (parsed.name != variable.name) {
      return bad_value({"env", variable.name}, "not a name for a variable");
    }
    total += text.size() + 1;
  }
  if (total > kMostEnvironmentBytes) {
    return Error{Code::kInvalid, 0, "env: the variables are longer than 1m together", {}};
  }
  return {};
}

}  // namespace

Status check_memory(const Given& given, std::uint64_t bytes) {
  if (bytes < kLeastMemory) {
    return bad_value(given, concat({"a sandbox needs at least ", format_size(kLeastMemory)}));
  }
  return {};
}

Status check_cpus(const Given& given, std::uint32_t millis) {
  if (millis < kLeastCpuMillis) {
    return bad_value(given, concat({"must be at least ", format_cpus(kLeastCpuMillis)}));
  }
  return {};
}

Status check_pids(const Given& given, std::uint64_t pids) {
  if (pids < kFewestPids) {
    return bad_value(given, concat({"must be at least ", std::to_string(kFewestPids)}));
  }
  if (pids > kMostPids) {
    return bad_value(given, concat({"must be at most ", std::to_string(kMostPids)}));
  }
  return {};
}

Status check_storage(const Given& given, std::uint64_t bytes) {
  if (bytes < kLeastStorage) {
    return bad_value(given, concat({"must be at least ", format_size(kLeastStorage)}));
  }
  return {};
}

std::chrono::milliseconds session_timeout(const Spec& spec) {
  return spec.timeout_choice == TimeoutChoice::kGiven ? spec.limits.timeout : kLongestTimeout;
}

Status check_timeout(const Given& given, std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    return bad_value(given, "a timeout must be longer than zero");
  }
  if (timeout > kLongestTimeout) {
    return bad_value(given, "a timeout can be 30 days at most");
  }
  return {};
}

Status validate(const Spec& spec, const HostFacts& host) {
  CARREL_TRY(check_limits(spec.limits));
  CARREL_TRY(check_against_host(spec.limits, host));
  CARREL_TRY(check_image(spec.image));
  CARREL_TRY(normalize_path({"workdir", spec.workdir}));
  CARREL_TRY(check_user_name({"user", spec.user}));
  if (spec.user_id == 0 || spec.group_id == 0) {
    return bad_value({"user", spec.user}, "a sandbox has no root");
  }
  CARREL_TRY(check_hostname({"hostname", spec.hostname}));
  if (!spec.cgroup_parent.empty()) {
    CARREL_TRY(normalize_path({"cgroup-parent", spec.cgroup_parent}));
  }
  for (const std::vector<std::string>* paths :
       {&spec.mount_grants.read_paths, &spec.mount_grants.write_paths}) {
    for (const std::string& path : *paths) {
      CARREL_TRY(parse_allowed_path({"allowed paths", path}));
    }
  }
  CARREL_TRY(check_mounts(spec.mounts));
  const std::string home = concat({"/home/", spec.user});
  for (const Mount& mount : spec.mounts) {
    if (mount.target != home && path_holds(mount.target, home)) {
      return bad_value({"mount", mount.target}, concat({"it would cover ", home}),
                       "choose a place such as /data or /workspace/data");
    }
  }
  CARREL_TRY(check_credentials(spec.network));
  return check_environment(spec.environment);
}

}  // namespace carrel::policy
