#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::kernel {

// File systems in files of the host, by loop devices. A device ends with its last user, however
// that ends, and no mount is in a table of the host's. For root, from Linux 5.8 on.

// The ext4 file system in the file `name` of a directory, as a mount that is nowhere: nodev,
// nosuid. Whoever mounts it while it is mounted gets the same file system.
Result<UniqueFd> mount_image(int directory, const std::string& name);

// A directory of a mount that is nowhere, as a mount of its own that is nowhere either. The first
// one cannot be put anywhere afterwards.
Result<UniqueFd> split_mount(UniqueFd mount, const std::string& name);

}  // namespace carrel::kernel
