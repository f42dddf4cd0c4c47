#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/native/mount_plan.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "kernel/cgroup.h"
#include "policy/spec.h"

namespace carrel::native {

inline constexpr char kWorkLeaf[] = "work";
inline constexpr char kGuestLeaf[] = "guest";

// The control groups of one sandbox. A one-shot has one group for everything: it ends with its
// command. A long-lived one has two leaves, so that the guest survives what the workload's limits
// do to the workload, and so that the workload can be frozen without it. Behind gVisor nobody can
// tell the two apart from outside: that has one group, and stands still by its guest's doing.
struct SandboxGroups {
  std::optional<kernel::Cgroup> box;    // absent where the host gives no control groups at all
  std::optional<kernel::Cgroup> work;   // long-lived only
  std::optional<kernel::Cgroup> guest;  // long-lived only
  kernel::CgroupEnforcement enforced;

  // Where the guest is born, if it can be, and the files to which it writes "0".
  int clone_into = -1;
  std::vector<UniqueFd> join;
  // The files to which the workload's first process writes "0".
  std::vector<UniqueFd> work_join;
  bool moves_later = false;  // it is born with the workload: the last of both are the v2 ones

  // The group that holds the workload's limits.
  [[nodiscard]] const kernel::Cgroup* limited() const {
    return work.has_value() ? &*work : (box.has_value() ? &*box : nullptr);
  }
  // Leaves the groups to whoever cleans up.
  void release();
};

// When the guest comes into its groups: in a v2 tree a process is best born there.
// kWithWork: of a long-lived one, in that of the workload, so that its first command need not wait.
// kTogether: at birth, and a long-lived one has one group for everything, too.
enum class Placing { kAtBirth, kLater, kWithWork, kTogether };

Result<SandboxGroups> make_groups(const kernel::CgroupLayout& layout, const std::string& id,
                                  const policy::Limits& limits, Lifetime lifetime, Placing placing);
// Those of a long-lived one that another process has made for a guest with the workload, which
// stay that one's.
Result<SandboxGroups> borrow_groups(const kernel::CgroupLayout& layout, const std::string& id);
// Of one whose groups were made with other limits and have no workload yet.
Status set_limits(SandboxGroups& groups, const policy::Limits& limits);
// Of a one-shot, in a place that may have been left for it: see places.h.
Result<SandboxGroups> take_groups(const kernel::CgroupLayout& layout, const std::string& place,
                                  const policy::Limits& limits, Placing placing);

}  // namespace carrel::native
