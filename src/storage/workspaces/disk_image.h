#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::storage {

// A file system of a workspace's own, in the file `disk` of its directory. The file is sparse and
// grows with what is written; disk_room.h sees to it that the host can give what is promised. Who
// fills it gets ENOSPC. What is deleted in it is given back by shrink_disk().
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

// What it says of itself, in blocks of 4096.
struct DiskTotals {
  std::uint64_t blocks = 0;
  std::uint64_t free_blocks = 0;  // as of its last unmount
  std::uint64_t own_blocks = 0;   // tables and journal; those that were never used have no blocks
  std::uint64_t errors = 0;       // how often something could not be written or read
};
Result<DiskTotals> read_totals(int directory);

// An error if something that was written to it is lost, or may be, and nothing was restored since.
Status check_disk(int directory);
// Puts a file system in order that nobody has mounted and that something was lost in. That is
// remembered until what is in it was restored.
Status repair_disk(int directory);
void forget_damage(int directory);

// What the file may still take of the host: its holes.
std::uint64_t unbacked_bytes(int directory);
std::uint64_t unbacked_bytes(const struct stat& file);
// Has the host give it all of that now.
Status set_aside(int directory);

// Whether some process has it mounted.
Result<bool> is_mounted(int directory);
// Whether a file system that is mounted takes data that needs new blocks; else who writes gets
// ENOSPC. It does when it is mounted.
enum class TakesNew { kNo, kYes };
Status take_new_data(int directory, TakesNew takes);
bool can_close(int directory);
bool is_closed(int directory);

// How much of the host's disk it holds without need. What of its own tables has blocks is not
// known.
struct SpareBytes {
  std::uint64_t at_least = 0;
  std::uint64_t at_most = 0;
};
Result<SpareBytes> spare_bytes(int directory);
// Gives it back to the host. Returns how many bytes that was.
Result<std::uint64_t> shrink_disk(int directory);

// The top of the file system, as a mount that is nowhere, and as a directory to work in.
Result<UniqueFd> mount_disk(int directory);
Result<UniqueFd> open_disk(int directory);

}  // namespace carrel::storage
