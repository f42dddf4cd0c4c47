#pragma once

#include <cstdint>

namespace carrel::native {

// As root each sandbox has a range of 65,536 ids of its own. These lie above what systemd hands
// out to containers and below 2^31, where some programs stop counting.
inline constexpr std::uint32_t kFirstSandboxId = 0x70000000;
inline constexpr std::uint32_t kIdsPerSandbox = 0x10000;
inline constexpr std::uint32_t kIdRanges = 4096;

}  // namespace carrel::native
