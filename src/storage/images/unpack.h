#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "storage/images/unpack_archive.h"

namespace carrel::storage {

// How far an import is: bytes of `total`, which is 0 where that is not known.
struct Progress {
  std::string_view what;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
using ProgressListener = std::function<void(const Progress&)>;

struct UnpackedLayer {
  std::string digest;  // of the archive as it was given, compressed or not
  Unpacked contents;
};

// Takes the archive that `source` is at the beginning of apart, in a process that can write nowhere
// but below tree/ and whiteouts of the directory `layer`, which are made. The bytes go through this
// process, which hashes what the other one reads. `what` names the archive for the listener.
Result<UnpackedLayer> unpack_layer(int source, int layer, const TreeLimits& limits,
                                   std::string_view what, const ProgressListener& listener);

}  // namespace carrel::storage
