#include "storage/images/oci_json.h"

#include "base/sha256.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::json;

}  // namespace

std::string text_of(const Json& object, const char* name) {
  const Json& part = part_of(object, name);
  return part.is_string() ? part.get<std::string>() : std::string();
}

const Json& part_of(const Json& object, const char* name) {
  static const Json kNone;
  if (!object.is_object()) {
    return kNone;
  }
  const auto found = object.find(name);
  return found != object.end() ? *found : kNone;
}

std::string sha256_of(std::string_view digest) {
  constexpr std::string_view kAlgorithm = "sha256:";
  if (!digest.starts_with(kAlgorithm) || !is_sha256(digest.substr(kAlgorithm.size()))) {
    return {};
  }
  return std::string(digest.substr(kAlgorithm.size()));
}

std::string digest_of(const Json& descriptor) { return sha256_of(text_of(descriptor, "digest")); }

std::string_view host_architecture() {
#if defined(__x86_64__)
  return "amd64";
#else
  return "arm64";
#endif
}

bool is_for_this_host(const Json& platform) {
  const std::string architecture = text_of(platform, "architecture");
  const std::string system = text_of(platform, "os");
  return (architecture.empty() || architecture == host_architecture()) &&
         (system.empty() || system == "linux");
}

}  // namespace carrel::storage
