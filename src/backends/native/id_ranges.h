#pragma once

#include <cstdint>
#include <string>

#include "backends/native/launch_child.h"

namespace carrel::native {

// As root each sandbox has a range of 65,536 ids of its own. These lie above what systemd hands
// out to containers and below 2^31, where some programs stop counting.
inline constexpr std::uint32_t kFirstSandboxId = 0x70000000;
inline constexpr std::uint32_t kIdsPerSandbox = 0x10000;
inline constexpr std::uint32_t kIdRanges = 4096;

// CRITICAL: id 0 stays unmapped. /proc shows an undumpable process as owned by the root of its
// namespace; if that were the workload's own id, the guest's files there would be the workload's.
inline std::string id_map(std::uint32_t outside) {
  return std::to_string(kInnerId) + " " + std::to_string(outside) + " 1";
}

// As root a nursery has all the ranges, from 1 on. Of each only the first id is a sandbox's; the
// last of the first is the nursery's own.
inline constexpr std::uint32_t kNurseryId = kIdsPerSandbox;
inline std::string nursery_id_map() {
  return "1 " + std::to_string(kFirstSandboxId) + " " + std::to_string(kIdsPerSandbox * kIdRanges);
}
inline constexpr std::uint32_t id_in_nursery(std::uint32_t range) {
  return 1 + range * kIdsPerSandbox;
}

}  // namespace carrel::native
