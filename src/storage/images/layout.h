#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/images/image_record.h"

namespace carrel::storage {

// Images as tools hand them over: an OCI layout or what `docker save` writes, in a directory. All
// of it is a stranger's: sizes are bounded, files are opened below the directory without following
// links, and what has a digest is checked against it.

struct FoundLayer {
  std::string digest;  // 64 hex digits: what the file must have
  std::string path;    // below the directory
};

struct FoundImage {
  std::vector<std::string> names;  // those that it brings along and that are possible
  std::string digest;              // of its manifest or its configuration
  std::vector<FoundLayer> layers;  // the lowest first
  ImageConfig config;
  std::string source;        // of a pulled image: see ImageRecord
  std::string index_digest;  // likewise
};

inline constexpr std::size_t kMostImageLayers = 256;

// The images in the directory; none: it is neither of the two, and so the files of one image. An
// image for other processors than this host's is left out, unless all are.
Result<std::vector<FoundImage>> read_layout(int directory);

}  // namespace carrel::storage
