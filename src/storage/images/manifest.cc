#include "storage/images/manifest.h"

#include <algorithm>
#include <array>

#include "storage/images/layout.h"
#include "storage/images/oci_json.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 5> kLayerTypes = {
    "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar"};

Error broken_manifest(const std::string& what) { return Error{Code::kDenied, 0, what, {}}; }

std::string shown(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 80));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

DocumentKind kind_of_document(std::string_view text) {
  const Json document = Json::parse(text, nullptr, false);
  const bool lists = part_of(document, "manifests").is_array();
  const bool has_layers = part_of(document, "layers").is_array();
  // A document that could be read as both is neither.
  if (lists == has_layers) {
    return DocumentKind::kUnknown;
  }
  return lists ? DocumentKind::kIndex : DocumentKind::kManifest;
}

Result<std::string> choose_from_index(std::string_view text) {
  const Json document = Json::parse(text, nullptr, false);
  std::string chosen;
  std::string others;
  bool chosen_is_plain = false;
  for (const Json& descriptor : part_of(document, "manifests")) {
    const Json& platform = part_of(descriptor, "platform");
    if (!is_for_this_host(platform)) {
      const std::string other = shown(text_of(platform, "architecture"));
      const bool known =
          other.empty() || other == "unknown" || others.find(other) != std::string::npos;
      others += known ? "" : (others.empty() ? "" : ", ") + other;
      continue;
    }
    // Of several, the first; before that, one that does not ask for a certain kind of processor.
    const bool plain = host_architecture() != "amd64" || text_of(platform, "variant").empty();
    if (chosen.empty() || (plain && !chosen_is_plain)) {
      chosen = digest_of(descriptor);
      chosen_is_plain = plain;
      if (chosen.empty()) {
        return broken_manifest("a manifest in its index has no sha256 digest");
      }
    }
  }
  if (chosen.empty()) {
    return Error{Code::kUnsupported,
                 0,
                 "the image is for " + (others.empty() ? "nothing that we know" : others) +
                     ", this host is " + std::string(host_architecture()),
                 {}};
  }
  return chosen;
}

Result<Manifest> parse_manifest(std::string_view text, std::uint64_t most_bytes) {
  const Json document = Json::parse(text, nullptr, false);
  Manifest manifest;
  manifest.config = digest_of(part_of(document, "config"));
  const Json& layers = part_of(document, "layers");
  if (manifest.config.empty() || !layers.is_array()) {
    return Error{Code::kUnsupported, 0, "its manifest is not one of an image",
                 "images in the format of 2016 and before have to be pushed again"};
  }
  if (layers.size() > kMostImageLayers) {
    return broken_manifest("the image has more than " + std::to_string(kMostImageLayers) +
                           " layers");
  }
  std::uint64_t total = 0;
  for (const Json& descriptor : layers) {
    const std::string type = text_of(descriptor, "mediaType");
    if (std::find(kLayerTypes.begin(), kLayerTypes.end(), type) == kLayerTypes.end()) {
      return Error{Code::kUnsupported, 0, "a layer is of the kind '" + shown(type) + "'",
                   "layers are tar, plain or compressed with gzip or zstd"};
    }
    const Json& size = part_of(descriptor, "size");
    ManifestLayer layer{digest_of(descriptor), 0};
    if (layer.digest.empty() || !size.is_number_unsigned()) {
      return broken_manifest("a layer has no sha256 digest or no size");
    }
    layer.size = size.get<std::uint64_t>();
    if (layer.size > most_bytes - total) {
      return Error{Code::kResource, 0,
                   "its layers have more than " + std::to_string(most_bytes >> 20) + " MiB",
                   "an image may take half of the free disk, and 32 GiB"};
    }
    total += layer.size;
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

}  // namespace carrel::storage
