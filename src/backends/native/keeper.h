#pragma once

#include "base/result.h"
#include "sandbox/walls.h"
#include "storage/home.h"

namespace carrel::native {

// The keeper: one process for each user that makes long-lived sandboxes, is the parent of their
// guests, and removes what belongs to a sandbox when its guest ends. It may be killed at any time:
// the sandboxes go on, and the next keeper finds them. It leaves when it has had nothing to keep
// for a while. `ready` gets a "k" once it listens, or when another keeper already does.
int run_keeper(storage::Home& home, int ready, sandbox::FindWalls find_walls);

}  // namespace carrel::native
