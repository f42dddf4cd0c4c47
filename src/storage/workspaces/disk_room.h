#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/home.h"

namespace carrel::storage {

// The host's room for workspaces that have file systems of their own (disk_image.h).
//
// Those are sparse files: together they may promise more than the host's disk has. ext4 takes data
// into memory long before the host's file system is asked for blocks, and what finds none then is
// lost. So each of them has only as much free room as the host can give: the rest of it is reserved
// (`reserved_clusters` in sysfs), and who wants more gets ENOSPC at once. A part of the host's disk
// is never given away, so that databases, snapshots and what is in memory still find room.
struct HostRoom {
  std::uint64_t free = 0;       // what the host's file system has left
  std::uint64_t kept = 0;       // what is not given away of that
  std::uint64_t unwritten = 0;  // what is in memory and has no blocks yet
};
Result<HostRoom> look_at_host_room(const Home& home);

// Divides `room` among those that want so much of it: all the same, except that nobody gets more
// than he wants.
std::vector<std::uint64_t> divide_room(std::uint64_t room,
                                       const std::vector<std::uint64_t>& wanted);

// Divides what the host has left among those that are mounted now, and returns what would be left
// if each of them were full; nothing when none is mounted. To be called before something is written
// to one that was just mounted.
Result<std::optional<std::uint64_t>> share_host_room(const Home& home);

// Other programs fill the disk, too: `carrel disk-watch` shares what is left as long as one is
// mounted. Starts it unless it is there. For programs that are `carrel`.
Status start_disk_watch(const Home& home);

// `carrel disk-watch`. `ready` gets a "k" once it is at work, or when another one already is.
int run_disk_watch(const Home& home, int ready);

// Whether the file system of that device, such as "loop7", can be given less room than it has.
bool can_share_room(const std::string& device);

}  // namespace carrel::storage
