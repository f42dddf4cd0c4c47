#pragma once

#include <cstdint>

namespace carrel::guest {

// What mount_setattr does, for kernels before 5.12: adds attributes to an attached mount, and with
// kAtRecursive to every mount below it, by remounting. What a mount already has stays. 0 or a
// negative errno; CRITICAL: after an error some of them lack the attributes. Needs the host's
// /proc.
int remount(int mount, std::uint64_t attributes, unsigned flags);

}  // namespace carrel::guest
