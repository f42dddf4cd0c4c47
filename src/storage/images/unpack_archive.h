#pragma once

#include <string>

#include "base/result.h"
#include "storage/images/tree_copy.h"
#include "storage/images/tree_writer.h"

namespace carrel::storage {

// Takes a tar apart, which may be compressed with gzip or zstd. This runs what a stranger wrote
// through a parser, so it is called only inside enter_unpack_room(). Names keep their bytes.

struct Unpacking {
  int input = -1;      // the archive, read to its end
  int tree = -1;       // where the files go
  int whiteouts = -1;  // where the deletions go; see layer.h
  TreeLimits limits;
};

struct Unpacked {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  LeftOut left_out;
};

Status unpack_archive(const Unpacking& job, Unpacked& result);

}  // namespace carrel::storage
