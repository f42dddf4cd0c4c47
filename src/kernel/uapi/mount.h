#pragma once

#include <cstdint>

// The parts of the mount interface that Debian 12's musl and kernel headers lack. Numbers from 424
// on are the same on every architecture.
namespace carrel::kernel::uapi {

inline constexpr long kCloseRange = 436;
inline constexpr long kMountSetattr = 442;

struct MountAttributes {  // struct mount_attr
  std::uint64_t set = 0;
  std::uint64_t clear = 0;
  std::uint64_t propagation = 0;
  std::uint64_t user_namespace = 0;
};

inline constexpr std::uint64_t kAttrReadOnly = 0x1;
inline constexpr std::uint64_t kAttrNoSuid = 0x2;
inline constexpr std::uint64_t kAttrNoDev = 0x4;
inline constexpr std::uint64_t kAttrNoExec = 0x8;
inline constexpr std::uint64_t kAttrIdMap = 0x00100000;
inline constexpr std::uint64_t kPropagationPrivate = 1U << 18;

inline constexpr unsigned kAtRecursive = 0x8000;
inline constexpr unsigned kAtEmptyPath = 0x1000;

}  // namespace carrel::kernel::uapi
