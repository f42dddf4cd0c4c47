#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/enforcement.h"
#include "backends/native/groups.h"
#include "backends/native/mount_plan.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "kernel/cgroup.h"
#include "policy/spec.h"
#include "sandbox/guest_stream.h"
#include "storage/home.h"

namespace carrel::native {

// A sandbox that was just made: its first process runs and has been told how to build the room.
// Whether that went well is the next thing that `stream` says.
struct Launched {
  std::string id;
  pid_t pid = 0;
  UniqueFd pidfd;
  sandbox::GuestStream stream;
  SandboxGroups groups;
  std::optional<std::uint32_t> id_range;
  Enforcement enforcement;
};

struct LaunchRequest {
  std::string id;
  policy::Spec spec;
  Lifetime lifetime = Lifetime::kOneShot;
  UniqueFd listener;          // kLongLived: the bound socket that the guest will listen on
  std::uint64_t lease_ms = 0;
  std::string why_no_scope;  // where one was asked for and not given; for the report
};

// The host as far as sandboxes depend on it; looked at once for many launches.
struct HostSetup {
  kernel::CgroupLayout cgroups;
  int landlock_abi = 0;
  std::uint32_t cpus = 1;  // that this process may use
};
// Whether a sandbox that names no group may be placed in the keeper's scope, where this process can
// have no group of its own. That scope may end at any moment before there is a process in it.
enum class KeepersScope { kUse, kLeave };
Result<HostSetup> look_at_setup(const storage::Home& home, const policy::Spec& spec,
                                KeepersScope keepers = KeepersScope::kLeave);

// Builds a sandbox in the order of docs/decisions/0003. On an error nothing is left behind. A
// protection that `spec.required` names and this host cannot give is kUnsupported.
Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request);

// Gives back what belongs to a sandbox of this id beside its processes: control groups and ids.
// Processes that are still in its groups are ended first.
Status clean_up(storage::Home& home, const kernel::CgroupLayout& cgroups, const std::string& id);

}  // namespace carrel::native
