#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel {

// What becomes of a path that leads to where something else is mounted: it is opened, or is EXDEV.
enum class Mounts { kEntered, kRefused };

// Opens something below the directory `root`, close-on-exec; an empty path is the directory itself.
// No link is followed and nothing outside is reached, whoever put what on the way. Works on kernels
// without openat2, too.
Result<UniqueFd> open_below(int root, const std::string& path, int flags,
                            Mounts mounts = Mounts::kRefused);

}  // namespace carrel
