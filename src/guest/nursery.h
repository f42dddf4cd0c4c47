#pragma once

#include "guest/maker.h"
#include "guest/root.h"
#include "protocol/boot.h"

// A guest that makes others. It stands in the shared part of a root and forks: its child is the
// first process of a sandbox, in a copy of that root and in a network that nobody else gets, and
// goes on as one that was made by itself. So a sandbox costs neither the program's start nor most
// of its mounts. It parses nothing that comes from a sandbox and holds nothing of one; sandboxes
// live on when it ends.
namespace carrel::guest {

// Whether this process is in a user namespace that somebody made.
bool in_own_user_namespace();

// How far the network of a first process is made: it is an empty one, or already captive.
enum class NetworkReady { kEmpty, kCaptive };

// Serves its maker, and whoever connects to the listener that came with `first`, until its maker is
// gone. It returns in the first process of each sandbox, in the first two parts of its root; its
// stream is kControl, and `frame` is what `spawn` was read from. While sandboxes are asked for, one
// such process waits for the next.
void be_nursery(const Received& first, Received& frame, protocol::Spawn& spawn, BuiltRoot& root,
                NetworkReady& network);

}  // namespace carrel::guest
