#include "policy/narrow.h"

#include <algorithm>
#include <span>
#include <string>

#include "policy/mount_paths.h"
#include "policy/network_narrow.h"

namespace carrel::policy {
namespace {

using Paths = std::span<const std::string>;

bool holds(Paths roots, const std::string& path) {
  return std::any_of(roots.begin(), roots.end(),
                     [&](const std::string& root) { return path_holds(root, path); });
}

// Whether every path is at or below one of `roots` or `more_roots`.
bool all_held(Paths paths, Paths roots, Paths more_roots) {
  return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return holds(roots, path) || holds(more_roots, path);
  });
}

// The first key that the wanted spec widens; empty: none.
std::string_view widened(const Spec& defaults, const Spec& wanted) {
  const Limits& most = defaults.limits;
  const Limits& limits = wanted.limits;
  if (limits.memory_bytes > most.memory_bytes) {
    return "memory";
  }
  if (limits.cpu_millis > most.cpu_millis) {
    return "cpus";
  }
  if (limits.pids > most.pids) {
    return "pids";
  }
  if (limits.disk_bytes > most.disk_bytes) {
    return "disk";
  }
  if (limits.tmp_bytes > most.tmp_bytes) {
    return "tmp";
  }
  if (limits.timeout > most.timeout) {
    return "timeout";
  }
  if (!network_narrows(defaults.network, wanted.network)) {
    return "network";
  }
  // Whoever chose other walls than the usual ones chose them for a reason.
  if (wanted.backend != defaults.backend && defaults.backend != Backend::kNative) {
    return "backend";
  }
  if (wanted.runtime != defaults.runtime && !defaults.runtime.empty()) {
    return "runtime";
  }
  if (defaults.isolation.has_value() &&
      wanted.isolation.value_or(Strength::kNamespace) < *defaults.isolation) {
    return "isolation";
  }
  if (wanted.image != defaults.image) {
    return "image";
  }
  if (wanted.workspace != defaults.workspace) {
    return "workspace";
  }
  if (wanted.cgroup_parent != defaults.cgroup_parent) {
    return "cgroup_parent";
  }
  if (defaults.on_idle != OnIdle::kNothing) {
    if (wanted.on_idle == OnIdle::kNothing) {
      return "on_idle";
    }
    if (wanted.idle_timeout > defaults.idle_timeout) {
      return "idle_timeout";
    }
  }
  // Lists of its own, empty ones too, take away what typing a path would grant; they add nothing.
  const MountGrants& grants = defaults.mount_grants;
  if (!all_held(wanted.mount_grants.read_paths, grants.read_paths, grants.write_paths)) {
    return "allowed_read_paths";
  }
  if (!all_held(wanted.mount_grants.write_paths, grants.write_paths, {})) {
    return "allowed_write_paths";
  }
  if (!wanted.mounts.empty()) {
    return "mount";
  }
  return {};
}

}  // namespace

Status check_narrows(const Spec& defaults, const Spec& wanted, std::string_view path) {
  const std::string_view key = widened(defaults, wanted);
  if (key.empty()) {
    return {};
  }
  return Error{Code::kDenied, 0,
               std::string(path) + ": a project's own file cannot widen '" + std::string(key) + "'",
               "name the file with --config, or give the option yourself"};
}

Status check_request_narrows(const Spec& defaults, const Spec& wanted) {
  const std::string_view key = widened(defaults, wanted);
  if (key.empty()) {
    return {};
  }
  return Error{Code::kDenied, 0, "a request with a token cannot widen '" + std::string(key) + "'",
               "what the operator's configuration gives is the most"};
}

}  // namespace carrel::policy
