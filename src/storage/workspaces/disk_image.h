#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::storage {

// A file system of a workspace's own, in the file `disk` of its directory, which the host has given
// all its room beforehand: who fills it gets ENOSPC, and the host's disk is left alone.
inline constexpr char kDiskFile[] = "disk";

// How it is made to hold so many bytes, in blocks of 4096.
struct DiskShape {
  std::uint64_t blocks = 0;
  std::uint64_t inodes = 0;
  std::uint64_t journal_blocks = 0;
  std::uint64_t reserved_blocks = 0;  // for the host's own use of it
};
DiskShape shape_of_disk(std::uint64_t bytes);

// Makes one that is empty, and opens it. kUnsupported, with the reason, where this host or this
// user cannot have it; nothing is left then.
Result<UniqueFd> make_disk(int directory, std::uint64_t bytes);

bool has_disk(int directory);

// The top of the file system, as a mount that is nowhere, and as a directory to work in.
Result<UniqueFd> mount_disk(int directory);
Result<UniqueFd> open_disk(int directory);

}  // namespace carrel::storage
