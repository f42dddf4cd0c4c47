#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernel/cgroup.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::manager {

// What a long-lived sandbox uses now: as its control group counts it or, where there is none, as
// its processes do. kGone for one that has ended.
Result<kernel::CgroupUsage> usage_of(const storage::Home& home, const storage::BoxRecord& record);

// How much of its disk a sandbox uses, as its guest says: /workspace and the home folder.
struct DiskUse {
  std::uint64_t used_bytes = 0;
  std::uint64_t most_bytes = 0;
};
Result<DiskUse> disk_use_of(sandbox::GuestStream& stream);

}  // namespace carrel::manager
