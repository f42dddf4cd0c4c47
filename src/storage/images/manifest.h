#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// The documents that a registry describes an image with.

struct ManifestLayer {
  std::string digest;  // 64 hex digits
  std::uint64_t size = 0;
};

struct Manifest {
  std::string config;  // the digest of the configuration
  std::vector<ManifestLayer> layers;
};

enum class DocumentKind { kIndex, kManifest, kUnknown };
DocumentKind kind_of_document(std::string_view text);

// The digest of the manifest for this host.
Result<std::string> choose_from_index(std::string_view text);

// An image's manifest with layers that we can unpack, no more than kMostImageLayers and together no
// more than `most_bytes`. Layers that are to be fetched from elsewhere are refused.
Result<Manifest> parse_manifest(std::string_view text, std::uint64_t most_bytes);

}  // namespace carrel::storage
