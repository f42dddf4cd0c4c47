#pragma once

#include <cstdint>

// Landlock as of ABI 7; Debian 12's headers know ABI 2. What a kernel does not know is masked out
// by the version that it reports.
namespace carrel::kernel::uapi {

inline constexpr long kLandlockCreateRuleset = 444;
inline constexpr long kLandlockAddRule = 445;
inline constexpr long kLandlockRestrictSelf = 446;
inline constexpr unsigned kLandlockQueryVersion = 1;
inline constexpr int kLandlockPathBeneath = 1;

struct LandlockRuleset {  // struct landlock_ruleset_attr
  std::uint64_t handled_fs = 0;
  std::uint64_t handled_net = 0;
  std::uint64_t scoped = 0;
};

struct [[gnu::packed]] LandlockPathBeneath {  // struct landlock_path_beneath_attr
  std::uint64_t allowed = 0;
  std::int32_t parent = -1;
};

inline constexpr std::uint64_t kFsExecute = 1U << 0;
inline constexpr std::uint64_t kFsWriteFile = 1U << 1;
inline constexpr std::uint64_t kFsReadFile = 1U << 2;
inline constexpr std::uint64_t kFsReadDir = 1U << 3;
inline constexpr std::uint64_t kFsRefer = 1U << 13;
inline constexpr std::uint64_t kFsTruncate = 1U << 14;
inline constexpr std::uint64_t kFsIoctlDev = 1U << 15;
inline constexpr std::uint64_t kScopeAbstractUnixSocket = 1U << 0;
inline constexpr std::uint64_t kScopeSignal = 1U << 1;

// Every file-system right that a kernel of this ABI knows.
constexpr std::uint64_t landlock_fs_rights(int abi) {
  std::uint64_t rights = (1U << 13) - 1;
  if (abi >= 2) {
    rights |= kFsRefer;
  }
  if (abi >= 3) {
    rights |= kFsTruncate;
  }
  if (abi >= 5) {
    rights |= kFsIoctlDev;
  }
  return rights;
}

}  // namespace carrel::kernel::uapi
