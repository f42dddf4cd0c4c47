#pragma once

#include <string>
#include <vector>

#include "backends/microvm/share.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::microvm {

// The process that keeps the trees that a machine is given: whatever the machine's kernel wants of
// them comes to it as messages of FUSE, over the trunk and the porter.
struct ClerkTree {
  UniqueFd socket;
  UniqueFd top;  // a folder or a file, O_PATH
  ShareMode mode = ShareMode::kReadOnly;
  std::vector<std::string> hidden;  // paths from its top
};

// /proc/self/fd as a mount of its own, out of which no path leads. For the calling process only,
// and before the host's root is left.
Result<UniqueFd> own_descriptors();

// Serves all trees until nobody is at the other ends any more. Whoever sends something malformed is
// not listened to any longer.
void keep_trees(std::vector<ClerkTree> trees, int descriptors);

}  // namespace carrel::microvm
