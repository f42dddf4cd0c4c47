#pragma once

#include "guest/maker.h"
#include "protocol/boot.h"

// A guest that makes others. It stands in the shared part of a root, in a network that nobody has
// used, and forks: its child is the first process of a sandbox, in a copy of that root and in that
// network, and goes on as one that was made by itself. So a sandbox costs neither the program's
// start nor most of its mounts. It parses nothing that comes from a sandbox and holds nothing of
// one; sandboxes live on when it ends.
namespace carrel::guest {

// Whether this process is in a user namespace that somebody made.
bool in_own_user_namespace();

// Serves its maker, and whoever connects to the listener that came with `first`, until its maker is
// gone. It returns in the first process of each sandbox, whose stream is kControl; `frame` is what
// `spawn` was read from.
void be_nursery(const Received& first, Received& frame, protocol::Spawn& spawn);

}  // namespace carrel::guest
