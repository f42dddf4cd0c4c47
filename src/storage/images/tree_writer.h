#pragma once

#include <cstdint>
#include <string>

#include "base/tree_writer.h"

namespace carrel::storage {

// The mode that a file of an image gets: whoever runs in it may read it, and execute it if anybody
// may. No set-id and no sticky bit.
inline unsigned image_mode(unsigned mode) {
  return 0444U | (mode & 0200U) | ((mode & 0111U) != 0 ? 0111U : 0U);
}

// Writes the tree of an image: files get the modes of one.
class TreeWriter : public carrel::TreeWriter {
 public:
  TreeWriter(int root, TreeLimits limits) : carrel::TreeWriter(root, limits) {}

  Result<UniqueFd> file(const std::string& path, unsigned mode, std::uint64_t size) {
    return carrel::TreeWriter::file(path, image_mode(mode), size);
  }
};

}  // namespace carrel::storage
