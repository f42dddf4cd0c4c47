#include "manager/usage.h"

#include "backends/native/groups.h"
#include "backends/native/strays.h"
#include "kernel/process_tree.h"

namespace carrel::manager {

Result<kernel::CgroupUsage> usage_of(const storage::Home& home, const storage::BoxRecord& record) {
  if (record.pid > 0 && kernel::has_ended(record.pid)) {
    // Its group and its process may still be there, and would answer with zeros.
    return Error{Code::kGone, 0, "sandbox " + record.id + " has ended", {}};
  }
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
  auto work = group.value().open_subgroup(native::kWorkLeaf, kernel::CgroupOwnership::kBorrowed);
  if (!work.ok() && work.error().code == Code::kNotFound) {
    return group.value().usage();  // one for everything
  }
  return work.ok() ? Result<kernel::CgroupUsage>(work.value().usage()) : work.error();
}

Result<DiskUse> disk_use_of(sandbox::GuestStream& stream) {
  constexpr int kDiskAnswerMs = 10'000;
  CARREL_TRY(stream.send(0, protocol::FrameType::kDisk));
  CARREL_ASSIGN(const sandbox::GuestFrame frame, stream.wait(kDiskAnswerMs));
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
  DiskUse use;
  use.used_bytes = reader.u64();
  use.most_bytes = reader.u64();
  if (frame.type != protocol::FrameType::kDiskUse || !reader.finished()) {
    return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
  }
  return use;
}

}  // namespace carrel::manager
