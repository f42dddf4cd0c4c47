// What comes from registries and from whoever names an image: references, URLs, challenges,
// manifests. What is accepted cannot be read as something else, and reads back to itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "http/url.h"
#include "storage/images/apt_sources.h"
#include "storage/images/image_record.h"
#include "storage/images/layout.h"
#include "storage/images/manifest.h"
#include "storage/images/reference.h"
#include "storage/images/registry_auth.h"

namespace {

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c > '~') {
      return false;
    }
  }
  return true;
}

// A tag may have dots side by side ("1..2"); no part between slashes and colons is only dots.
bool has_dots_as_part(std::string_view text) {
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of("/:@", begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of('.') == std::string_view::npos) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

void try_reference(std::string_view text) {
  namespace storage = carrel::storage;
  const auto reference = storage::parse_reference(text);
  if (!reference.ok()) {
    require(reference.error().to_string().size() < 400);
    return;
  }
  const std::string full = storage::to_string(reference.value());
  require(is_plain(full) && !has_dots_as_part(full));
  require(full.find("//") == std::string::npos && full.find('?') == std::string::npos);
  require(storage::is_image_name(storage::short_name(reference.value())));
  const auto again = storage::parse_reference(full);
  require(again.ok() && storage::to_string(again.value()) == full);
  const auto url = carrel::http::parse_url("https://" + reference.value().registry + "/v2/" +
                                           reference.value().repository);
  require(!url.ok() || url.value().target == "/v2/" + reference.value().repository);
}

void try_url(std::string_view text) {
  namespace http = carrel::http;
  const auto url = http::parse_url(text);
  if (!url.ok()) {
    require(is_plain(url.error().message) || url.error().message.size() < 400);
    return;
  }
  require(url.value().target.starts_with('/') && is_plain(url.value().target));
  require(!url.value().host.empty() && is_plain(url.value().host) && url.value().port != 0);
  const auto again =
      http::parse_url((url.value().scheme == http::Scheme::kHttp ? "http://" : "https://") +
                      http::authority(url.value()) + url.value().target);
  require(again.ok() && http::same_origin(again.value(), url.value()));
  require(again.value().target == url.value().target);
  (void)http::resolve_url(url.value(), text.substr(text.size() / 2));
}

void try_manifest(std::string_view text) {
  namespace storage = carrel::storage;
  constexpr std::uint64_t kMost = 1ULL << 40;
  const auto chosen = storage::kind_of_document(text) == storage::DocumentKind::kIndex
                          ? storage::choose_from_index(text)
                          : carrel::Result<std::string>(std::string(64, '0'));
  require(!chosen.ok() || carrel::is_sha256(chosen.value()));
  const auto manifest = storage::parse_manifest(text, kMost);
  if (manifest.ok()) {
    std::uint64_t total = 0;
    for (const auto& layer : manifest.value().layers) {
      require(carrel::is_sha256(layer.digest));
      total += layer.size;
    }
    require(total <= kMost && manifest.value().layers.size() <= storage::kMostImageLayers);
    require(carrel::is_sha256(manifest.value().config));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace storage = carrel::storage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_reference(text);
  try_url(text);
  try_manifest(text);
  (void)storage::parse_challenge(text);
  require(is_plain(storage::token_in(text)));
  const std::string secret = storage::credentials_in(text, "a");
  require(secret.empty() || is_plain(secret.substr(sizeof "Basic")));
  for (const auto& sources : {storage::parse_apt_lines(text), storage::parse_apt_stanzas(text)}) {
    for (const std::string& line : storage::lines_for_suite(sources, "bookworm")) {
      require(line.starts_with("deb ") && line.find('\n') == std::string::npos);
    }
  }
  return 0;
}
