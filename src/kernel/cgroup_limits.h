#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernel/cgroup_layout.h"

namespace carrel::kernel {

// Whom the kernel kills when the memory limit is reached. kGroup (every process of the group) is
// there on v2 only; on v1 it falls back to one process, and who wants the group gone waits on
// Cgroup::oom_event_fd() and kills it.
enum class OomVictim { kOneProcess, kGroup };

// What a group may use. An absent limit is no limit; zero is not a limit and is refused.
struct CgroupLimits {
  std::optional<std::uint64_t> memory_bytes;  // memory and swap together
  std::optional<std::uint64_t> cpu_millis;    // thousandths of one core, at most a million
  std::optional<std::uint64_t> pids;          // processes and threads
  OomVictim oom_victim = OomVictim::kOneProcess;
};

// Which limits the kernel really holds. A resource without a limit is kNone, too.
struct CgroupEnforcement {
  CgroupSource memory = CgroupSource::kNone;
  CgroupSource cpu = CgroupSource::kNone;
  CgroupSource pids = CgroupSource::kNone;
  // Whether the memory limit also holds for swap. False on a host that does not count swap: there
  // the limit is on resident memory alone.
  bool swap_accounted = false;
};

Status check_limits(const CgroupLimits& limits);

// Writes the limits whose controllers are in `controllers` to the files of `group`, and notes in
// `enforced` what was set. A missing or forbidden file leaves its resource as it was in `enforced`;
// a value the kernel refuses is an error.
Status write_limits(int home, std::string_view group, CgroupVersion version,
                    ControllerSet controllers, const CgroupLimits& limits,
                    CgroupEnforcement& enforced);

// Quota and period in microseconds for a share of the processor. The kernel takes no quota below a
// millisecond, so small shares get a longer period.
struct CpuBandwidth {
  std::uint64_t quota_us = 0;
  std::uint64_t period_us = 0;
};
CpuBandwidth cpu_bandwidth(std::uint64_t cpu_millis);

}  // namespace carrel::kernel
