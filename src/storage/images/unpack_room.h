#pragma once

#include <cstdint>

#include "base/result.h"

namespace carrel::storage {

// Where an archive that nobody has read is taken apart: a process that can read its input, write
// below one directory, and do nothing else.

struct RoomPlan {
  int tree = -1;                      // the directory, which becomes the root
  std::uint64_t largest_file = 0;     // bytes
  std::uint64_t memory = 2ULL << 30;  // address space
};

// Locks this process in for good. To be called in a forked child of one thread that has closed
// every descriptor it does not need: those that stay open are not taken away.
//
// In force afterwards: a root of its own and Landlock (the first needs namespaces, the second a
// kernel with it; without either there is no room and an error), a network namespace without a
// network where there are namespaces, no capabilities, limits on memory, files and processes, and
// an allow-list of system calls that has no exec, no socket, no set-id bit and no device.
Status enter_unpack_room(const RoomPlan& plan);

}  // namespace carrel::storage
