#pragma once

#include "base/result.h"
#include "storage/home.h"

namespace carrel::egress {

// The egress process: one for each user, started on demand. It serves the networks of all sandboxes
// that are registered, and leaves when there has been none for a while. It may be killed at any
// time: sandboxes have no network then, until the process above it has started another one, which
// finds them. `ready` gets a "k" once it listens, or when another one already does.
int run_egress(storage::Home& home, int ready);

}  // namespace carrel::egress
