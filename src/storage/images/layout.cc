#include "storage/images/layout.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files.h"
#include "base/sha256.h"
#include "storage/images/oci_json.h"
#include "storage/images/tree_writer.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostImages = 64;
constexpr int kDeepestIndex = 3;
constexpr std::string_view kBlobs = "blobs/sha256/";

Error broken(const std::string& what) { return Error{Code::kDenied, 0, what, {}}; }

Result<std::string> read_text(int directory, const std::string& path) {
  CARREL_ASSIGN(UniqueFd file, open_file_below(directory, path));
  auto text = read_all(file.get(), kLargestJson);
  if (!text.ok()) {
    text.error().message = "read '" + path + "': " + text.error().message;
  }
  return text;
}

bool exists(int directory, const std::string& path) {
  return open_file_below(directory, path).ok();
}

Result<std::string> read_checked(int directory, const std::string& path,
                                 const std::string& digest) {
  CARREL_ASSIGN(std::string text, read_text(directory, path));
  if (sha256(text) != digest) {
    return broken("'" + path + "' does not have the digest that it should have");
  }
  return text;
}

void add_name(std::vector<std::string>& names, std::string name) {
  constexpr std::string_view kHub = "docker.io/library/";
  if (name.starts_with(kHub)) {
    name.erase(0, kHub.size());
  }
  if (is_image_name(name) && std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(std::move(name));
  }
}

// Collects images, and what it would have said about those that are not for this host.
class Layout {
 public:
  explicit Layout(int directory) : directory_(directory) {}

  Status read_oci() {
    CARREL_ASSIGN(const std::string text, read_text(directory_, "index.json"));
    return read_index(Json::parse(text, nullptr, false), {}, 0);
  }

  Status read_docker(const Json& list) {
    for (const Json& entry : list) {
      CARREL_TRY(read_docker_image(entry));
    }
    return {};
  }

  Result<std::vector<FoundImage>> finish() {
    if (images_.empty()) {
      return foreign_.empty() ? broken("there is no image in it")
                              : Error{Code::kUnsupported,
                                      0,
                                      "the image is for " + foreign_ + ", this host is " +
                                          std::string(host_architecture()),
                                      {}};
    }
    return std::move(images_);
  }

 private:
  Status add(FoundImage image) {
    if (image.layers.size() > kMostImageLayers) {
      return broken("the image has more than " + std::to_string(kMostImageLayers) + " layers");
    }
    if (images_.size() == kMostImages) {
      return broken("there are more than " + std::to_string(kMostImages) + " images in it");
    }
    images_.push_back(std::move(image));
    return {};
  }

  Status read_index(const Json& index, const std::vector<std::string>& names, int depth) {
    const Json& manifests = part_of(index, "manifests");
    if (!manifests.is_array() || depth > kDeepestIndex) {
      return broken("its index lists no manifests");
    }
    for (const Json& descriptor : manifests) {
      std::vector<std::string> own = names;
      const Json& notes = part_of(descriptor, "annotations");
      add_name(own, text_of(notes, "io.containerd.image.name"));
      add_name(own, text_of(notes, "org.opencontainers.image.ref.name"));
      const Json& platform = part_of(descriptor, "platform");
      const bool attestation = text_of(platform, "os") == "unknown";
      if (!is_for_this_host(platform)) {
        foreign_ = attestation ? foreign_ : text_of(platform, "architecture");
        continue;
      }
      const std::string digest = digest_of(descriptor);
      if (digest.empty()) {
        return broken("a manifest has no sha256 digest");
      }
      CARREL_ASSIGN(const std::string text,
                    read_checked(directory_, std::string(kBlobs) + digest, digest));
      const Json manifest = Json::parse(text, nullptr, false);
      CARREL_TRY(part_of(manifest, "manifests").is_array() ? read_index(manifest, own, depth + 1)
                                                           : read_manifest(manifest, own, digest));
    }
    return {};
  }

  Status read_manifest(const Json& manifest, const std::vector<std::string>& names,
                       const std::string& digest) {
    FoundImage image;
    image.names = names;
    image.digest = digest;
    const std::string config = digest_of(part_of(manifest, "config"));
    const Json& layers = part_of(manifest, "layers");
    if (config.empty() || !layers.is_array()) {
      return broken("the manifest " + digest.substr(0, 12) + " is not one of an image");
    }
    CARREL_ASSIGN(const bool fits, read_config(std::string(kBlobs) + config, config, image));
    if (!fits) {
      return {};
    }
    for (const Json& layer : layers) {
      const std::string blob = digest_of(layer);
      if (blob.empty()) {
        return broken("a layer has no sha256 digest");
      }
      image.layers.push_back({blob, std::string(kBlobs) + blob});
    }
    return add(std::move(image));
  }

  // False: the image is for other processors.
  Result<bool> read_config(const std::string& path, const std::string& digest, FoundImage& image) {
    CARREL_ASSIGN(const std::string text, digest.empty() ? read_text(directory_, path)
                                                         : read_checked(directory_, path, digest));
    config_ = Json::parse(text, nullptr, false);
    if (!config_.is_object()) {
      return broken("the configuration '" + path + "' is not JSON");
    }
    if (!is_for_this_host(config_)) {
      foreign_ = text_of(config_, "architecture");
      return false;
    }
    image.config = config_from_json(text);
    image.digest = image.digest.empty() ? sha256(text) : image.digest;
    return true;
  }

  // The digest that the name of the file promises: blobs/sha256/HEX or HEX.json.
  static std::string promised_digest(std::string_view path) {
    if (path.starts_with(kBlobs)) {
      path.remove_prefix(kBlobs.size());
    } else if (path.ends_with(".json")) {
      path.remove_suffix(5);
    }
    return is_sha256(path) ? std::string(path) : std::string();
  }

  Status read_docker_image(const Json& entry) {
    FoundImage image;
    const Json& tags = part_of(entry, "RepoTags");
    if (tags.is_array()) {
      for (const Json& tag : tags) {
        add_name(image.names, tag.is_string() ? tag.get<std::string>() : std::string());
      }
    }
    const std::string path = text_of(entry, "Config");
    CARREL_ASSIGN(const bool fits, read_config(path, promised_digest(path), image));
    if (!fits) {
      return {};
    }
    const Json& layers = part_of(entry, "Layers");
    const Json& contents = part_of(part_of(config_, "rootfs"), "diff_ids");
    if (!layers.is_array() || !contents.is_array() || layers.size() != contents.size()) {
      return broken("its configuration and its manifest do not have the same layers");
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string file = layers[i].is_string() ? layers[i].get<std::string>() : "";
      std::string digest = promised_digest(file);
      if (digest.empty()) {
        digest = digest_of(Json{{"digest", contents[i]}});
      }
      if (digest.empty()) {
        return broken("a layer has no sha256 digest");
      }
      image.layers.push_back({digest, file});
    }
    return add(std::move(image));
  }

  int directory_;
  Json config_;
  std::string foreign_;
  std::vector<FoundImage> images_;
};

}  // namespace

Result<std::vector<FoundImage>> read_layout(int directory) {
  Layout layout(directory);
  // What `docker save` writes today is both; its own list has the names.
  if (auto text = read_text(directory, "manifest.json"); text.ok()) {
    const Json list = Json::parse(text.value(), nullptr, false);
    if (list.is_array() && !list.empty() && part_of(list.front(), "Layers").is_array()) {
      CARREL_TRY(layout.read_docker(list));
      return layout.finish();
    }
  }
  if (exists(directory, "oci-layout")) {
    CARREL_TRY(layout.read_oci());
    return layout.finish();
  }
  return std::vector<FoundImage>{};
}

}  // namespace carrel::storage
