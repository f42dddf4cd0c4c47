#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::kernel {

// File systems in files of the host, by loop devices. A device ends with its last user, however
// that ends, and no mount is in a table of the host's. For root, from Linux 5.8 on.

// The ext4 file system in the file `name` of a directory, as a mount that is nowhere: nodev,
// nosuid. Whoever mounts it while it is mounted gets the same file system. Data that cannot be
// written ends all writing to it. The file is locked (flock) until it is mounted.
Result<UniqueFd> mount_image(int directory, const std::string& name);

// A file that a loop device of this host has, and the name of that device, such as "loop7".
struct BoundImage {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
};
Result<std::vector<BoundImage>> bound_images();

// A directory of a mount that is nowhere, as a mount of its own that is nowhere either. The first
// one cannot be put anywhere afterwards.
Result<UniqueFd> split_mount(UniqueFd mount, const std::string& name);

}  // namespace carrel::kernel
