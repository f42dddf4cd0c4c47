#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/sha256.h"
#include "storage/images/tree_writer.h"

namespace carrel::storage {

// What an image cannot have and was left out of it. None of it would work in a sandbox.
struct LeftOut {
  std::uint64_t devices = 0;     // character and block devices, pipes, sockets
  std::uint64_t set_ids = 0;     // set-id and sticky bits
  std::uint64_t attributes = 0;  // extended attributes
  std::uint64_t mounts = 0;      // directories where another file system is mounted, and our own
};

// What copy_tree() does on the way.
struct CopyOptions {
  Sha256* hash = nullptr;  // fed with names, kinds, modes and contents, in order
  int without = -1;        // a directory that is not copied, such as the one that is copied into
};

// Copies everything below the directory `from` into the tree of `to`: files with their modes (see
// image_mode) and times, links as links, hard links among the copied files as such. No link is
// followed on either side. What `from` has and an image cannot have is counted in `left_out`.
Status copy_tree(int from, TreeWriter& to, LeftOut& left_out, const CopyOptions& options = {});

}  // namespace carrel::storage
