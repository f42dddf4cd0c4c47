#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::storage {

// The host's room for workspaces that have file systems of their own (disk_image.h).
//
// Those are sparse files. ext4 takes data into memory long before the host's file system is asked
// for blocks, and what finds none then is lost. So a file system that is mounted is promised the
// whole size of its file, and the host has to be able to keep that: where it has plenty, the file
// stays sparse; where it has not, the file gets all its blocks while there still are some. If even
// that is too late, nothing new is taken (`reserved_clusters` in sysfs): who writes gets ENOSPC.
struct HostRoom {
  std::uint64_t free = 0;      // what the host's file system has left
  std::uint64_t kept = 0;      // of that, for databases and snapshots: never promised
  std::uint64_t promised = 0;  // what workspaces that are mounted may still take of it
  // What nobody was promised; less than nothing where too much was.
  [[nodiscard]] std::int64_t spare() const {
    return static_cast<std::int64_t>(free) - static_cast<std::int64_t>(kept + promised);
  }
};
// Of the file system that a directory is on.
Result<HostRoom> look_at_host_room(int directory);

// For how long somebody has a file system mounted: the time of one operation, or that of a sandbox.
enum class Claim { kPassing, kLasting };
// Sees to it that the file system in `place`, which was just mounted, gets what it is promised, or
// that it takes nothing new. An error if neither can be had.
Status claim_room(const Home& home, int place, Claim claim);
// Mounts the one in `place`, put in order where something was lost in it, and claims its room.
Result<UniqueFd> mount_with_room(const Home& home, int place, Claim claim);

// Gives the host back what the file system in `place` holds and does not need; nothing where it is
// mounted and others would take it. Returns how many bytes that was.
Result<std::uint64_t> give_back_room(const Home& home, int place);

// Other programs fill the disk, too: `carrel disk-watch` looks after that as long as a workspace is
// mounted, and gives back to the host what workspaces do not need. Starts it unless it is there.
// For programs that are `carrel`.
Status start_disk_watch(const Home& home);

// `carrel disk-watch`: returns when no workspace is mounted any more, or another one is at work.
int run_disk_watch(const Home& home);

}  // namespace carrel::storage
