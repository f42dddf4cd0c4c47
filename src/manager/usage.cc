#include "manager/usage.h"

#include "backends/native/groups.h"
#include "backends/native/strays.h"
#include "kernel/process_tree.h"

namespace carrel::manager {

Result<kernel::CgroupUsage> usage_of(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(kernel::CgroupLayout groups, native::find_groups(home, record.cgroup_parent));
  auto group = kernel::Cgroup::open(groups, record.id, kernel::CgroupOwnership::kBorrowed);
  if (!group.ok()) {
    if (group.error().code == Code::kNotFound) {
      // No control group counts on this host: add up its processes.
      CARREL_ASSIGN(kernel::TreeUsage tree, kernel::usage_of_tree(record.pid));
      kernel::CgroupUsage usage;
      usage.memory_bytes = tree.memory_bytes;
      usage.pids = tree.processes;
      usage.cpu_usec = tree.cpu_usec;
      return usage;
    }
    return group.error();
  }
  CARREL_ASSIGN(kernel::Cgroup work,
                group.value().open_subgroup(native::kWorkLeaf, kernel::CgroupOwnership::kBorrowed));
  return work.usage();
}

}  // namespace carrel::manager
