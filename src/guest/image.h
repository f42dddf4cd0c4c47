#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::guest {

// The guest program as a sealed memory file, ready for execveat. A sandbox that gets hold of it
// holds a copy that nobody can write to, never the host's binary. It is made once and stays open.
Result<int> image();

}  // namespace carrel::guest
