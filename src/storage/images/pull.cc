#include "storage/images/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "storage/images/download.h"
#include "storage/images/image_store.h"
#include "storage/images/layout.h"
#include "storage/images/manifest.h"
#include "storage/images/oci_json.h"
#include "storage/images/registry.h"
#include "storage/images/registry_auth.h"

namespace carrel::storage {

namespace {

constexpr int kDeepestPulledIndex = 3;
constexpr int kMostAttempts = 3;

class Pull {
 public:
  Pull(const Home& home, const PullRequest& request, Reference reference, ImageStore store,
       RegistryOptions options)
      : home_(home),
        request_(request),
        reference_(std::move(reference)),
        store_(std::move(store)),
        registry_(reference_, std::move(options)) {}

  Result<Pulled> run() {
    CARREL_ASSIGN(const Manifest manifest, find_manifest());
    image_.names = {request_.name.empty() ? short_name(reference_) : request_.name};
    image_.source = to_string(reference_);
    if (auto here = store_.find(image_.names.front());
        here.ok() && here.value().name == image_.names.front() &&
        here.value().digest == image_.digest && here.value().source == image_.source) {
      return Pulled{{std::move(here.value()), {}}, Pulled::What::kUnchanged};
    }
    CARREL_ASSIGN(const std::string config, registry_.small_blob(manifest.config));
    CARREL_TRY(check_platform(config));
    image_.config = config_from_json(config);
    for (const ManifestLayer& layer : manifest.layers) {
      image_.layers.push_back({layer.digest, layer.digest});
    }
    CARREL_ASSIGN(const UniqueFd downloads, store_.open_downloads());
    // A layer that was here a moment ago may be removed before the store is locked.
    for (int attempt = 1;; ++attempt) {
      CARREL_TRY(download(manifest, downloads.get()));
      auto imported =
          import_found(home_, image_, downloads.get(),
                       {.source = image_.source, .name = {}, .listener = request_.listener});
      if (imported.ok()) {
        forget_downloads();
        return Pulled{std::move(imported.value()), Pulled::What::kNew};
      }
      if (imported.error().error_number != ENOENT || attempt == kMostAttempts) {
        forget_downloads();  // they are what the manifest says: it would fail again
        return imported.error();
      }
    }
  }

 private:
  void forget_downloads() {
    for (const Download& done : downloads_) {
      done.remove();
    }
  }

  // As much as an image may have: see Import.
  [[nodiscard]] std::uint64_t most_bytes() const {
    struct statvfs space{};
    const std::uint64_t most = TreeLimits{}.bytes;
    return ::fstatvfs(store_.directory(), &space) != 0
               ? most
               : std::min(most, std::uint64_t{space.f_bavail} * space.f_frsize / 2);
  }

  // Follows indices to the manifest for this host. The digests of both are noted: what was asked
  // for, and what it is.
  Result<Manifest> find_manifest() {
    CARREL_ASSIGN(Registry::Document document,
                  reference_.digest.empty() ? registry_.manifest_by_tag(reference_.tag)
                                            : registry_.manifest_by_digest(reference_.digest));
    for (int depth = 0; kind_of_document(document.bytes) == DocumentKind::kIndex; ++depth) {
      if (depth == kDeepestPulledIndex) {
        return Error{Code::kDenied, 0, "its index leads to indices without end", {}};
      }
      image_.index_digest = image_.index_digest.empty() ? document.digest : image_.index_digest;
      CARREL_ASSIGN(const std::string chosen, choose_from_index(document.bytes));
      CARREL_ASSIGN(document, registry_.manifest_by_digest(chosen));
    }
    image_.digest = document.digest;
    return parse_manifest(document.bytes, most_bytes());
  }

  static Status check_platform(const std::string& config) {
    const nlohmann::json document = nlohmann::json::parse(config, nullptr, false);
    if (!document.is_object()) {
      return Error{Code::kDenied, 0, "its configuration is not JSON", {}};
    }
    if (!is_for_this_host(document)) {
      return Error{Code::kUnsupported,
                   0,
                   "the image is for other systems than this host, which is " +
                       std::string(host_architecture()),
                   {}};
    }
    return {};
  }

  Status download(const Manifest& manifest, int directory) {
    downloads_.clear();
    std::vector<const ManifestLayer*> missing;
    std::uint64_t total = 0;
    for (const ManifestLayer& layer : manifest.layers) {
      const bool known = std::any_of(missing.begin(), missing.end(), [&](const auto* other) {
        return other->digest == layer.digest;
      });
      if (!known && !store_.has_layer(layer.digest)) {
        missing.push_back(&layer);
        total += layer.size;
      }
    }
    // In the order of their digests, so that two pulls do not wait for each other's.
    std::sort(missing.begin(), missing.end(),
              [](const auto* a, const auto* b) { return a->digest < b->digest; });
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const std::string what =
          "downloading layer " + std::to_string(i + 1) + " of " + std::to_string(missing.size());
      CARREL_ASSIGN(Download one, Download::open(directory, missing[i]->digest, missing[i]->size));
      auto finished = one.finish(registry_, [&](std::uint64_t done) {
        if (request_.listener) {
          request_.listener({what, before + done, total});
        }
      });
      if (!finished.ok()) {
        if (finished.error().code == Code::kDenied) {
          forget_downloads();  // nobody wants the rest of this image
        }
        finished.error().message = what + ": " + finished.error().message;
        return finished;
      }
      before += missing[i]->size;
      downloads_.push_back(std::move(one));
    }
    return {};
  }

  const Home& home_;
  const PullRequest& request_;
  Reference reference_;
  ImageStore store_;
  Registry registry_;
  FoundImage image_;
  std::vector<Download> downloads_;
};

}  // namespace

Result<Pulled> pull_image(const Home& home, const PullRequest& request) {
  CARREL_ASSIGN(Reference reference, parse_reference(request.reference));
  RegistryOptions options;
  options.http.plain_http = request.plain_http;
  options.http.proxies = http::ProxySettings::from_environment();
  CARREL_ASSIGN(options.credentials, find_credentials(reference.registry));
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  Pull pull(home, request, std::move(reference), std::move(store), std::move(options));
  auto pulled = pull.run();
  if (!pulled.ok()) {
    pulled.error().message = "pull '" + request.reference + "': " + pulled.error().message;
  }
  return pulled;
}

}  // namespace carrel::storage
