#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::guest {

// The guest program as a sealed memory file, ready for execveat. A sandbox that gets hold of it
// holds a copy that nobody can write to, never the host's binary. The sandboxes that one process
// makes share it, and with it the memory, where the kernel seals its mode, too.
Result<UniqueFd> open_image();

}  // namespace carrel::guest
