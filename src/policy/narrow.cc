#include "policy/narrow.h"

#include <string>

namespace carrel::policy {

Status check_narrows(const Spec& defaults, const Spec& wanted, std::string_view path) {
  auto widens = [&](std::string_view key) {
    return Error{Code::kDenied, 0,
                 std::string(path) + ": a project's own file cannot widen '" + std::string(key) +
                     "'",
                 "name the file with --config, or give the option yourself"};
  };
  const Limits& most = defaults.limits;
  const Limits& limits = wanted.limits;
  if (limits.memory_bytes > most.memory_bytes) {
    return widens("memory");
  }
  if (limits.cpu_millis > most.cpu_millis) {
    return widens("cpus");
  }
  if (limits.pids > most.pids) {
    return widens("pids");
  }
  if (limits.disk_bytes > most.disk_bytes) {
    return widens("disk");
  }
  if (limits.tmp_bytes > most.tmp_bytes) {
    return widens("tmp");
  }
  if (limits.timeout > most.timeout) {
    return widens("timeout");
  }
  if (wanted.image != defaults.image) {
    return widens("image");
  }
  if (wanted.cgroup_parent != defaults.cgroup_parent) {
    return widens("cgroup_parent");
  }
  return {};
}

}  // namespace carrel::policy
