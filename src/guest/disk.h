#pragma once

#include <cstdint>

#include "guest/state.h"

namespace carrel::guest {

// Where nothing holds the size of a workspace, the guest looks at it every now and then while there
// is somebody who could write to it, and ends everybody when it is too large. Against accidents: a
// fast writer gets further than the limit before he is seen.

// Looks if it is time, and says whether it was.
bool watch_disk(Guest& guest, std::uint64_t now);

// How much of the workspace's room is used, for whoever asks. Where it has no file system of its
// own, what the last look found is told again for a while: a walk takes the guest's time.
struct DiskUse {
  std::uint64_t used = 0;
  std::uint64_t most = 0;
};
DiskUse look_at_disk(Guest& guest, std::uint64_t now);

}  // namespace carrel::guest
