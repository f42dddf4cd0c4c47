#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::kernel {

// Copies of mounts that are in no tree, by the mount API of Linux 5.2 and mount_setattr of 5.12.
// All of these need CAP_SYS_ADMIN in this process's mount namespace.

// What is at `path_fd` with everything that is mounted below it, as one that is mounted nowhere.
Result<UniqueFd> copy_mounts(int path_fd);

enum class Depth { kTop, kWhole };

// Adds attributes (MOUNT_ATTR_*) to the mount and to all below it, and separates them from the
// mounts that they were copied from: neither sees what is mounted in the other later.
Status seal_mounts(int mount, std::uint64_t attributes);

// Who on the file system is whom for those who use the mount.
struct IdPair {
  std::uint32_t stored = 0;
  std::uint32_t seen = 0;
};
struct OwnerMap {
  IdPair user;
  IdPair group;
};

// How many ids a map takes, from `seen` on.
inline constexpr std::uint32_t kIdsOfOwners = 65535;

// Shows the files of one user and one group as another's, and stores the files of the other as the
// first's. Everybody else's are shown as those of ids after `seen`, who must be nobody. An error
// (kUnsupported) where the file system or the kernel knows no such mounts. Once only, and before
// the mount is put anywhere.
Status map_owners(int mount, const OwnerMap& map, Depth depth);

}  // namespace carrel::kernel
