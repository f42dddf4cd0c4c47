#pragma once

#include "base/result.h"
#include "kernel/cgroup.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::manager {

// What a long-lived sandbox uses now: as its control group counts it or, where there is none, as
// its processes do. kGone for one that has ended.
Result<kernel::CgroupUsage> usage_of(const storage::Home& home, const storage::BoxRecord& record);

}  // namespace carrel::manager
