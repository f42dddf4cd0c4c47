#include "storage/images/reference.h"

#include <algorithm>

#include "storage/images/image_record.h"
#include "storage/images/oci_json.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kLongestTag = 128;
constexpr std::size_t kLongestRepository = 180;
constexpr std::string_view kHub = "docker.io";
constexpr std::string_view kOfficial = "library/";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_alphanumeric(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

Error bad_reference(std::string_view text, const std::string& why) {
  std::string shown(text.substr(0, 100));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return Error{Code::kInvalid, 0, "'" + shown + "' is not an image of a registry: " + why,
               "like debian:12, ghcr.io/team/tool:v1 or localhost:5000/tool@sha256:HEX"};
}

// "host" or "host:port"
bool is_registry(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view host = text.substr(0, colon);
  const bool good_host =
      !host.empty() && is_alphanumeric(host.front()) && is_alphanumeric(host.back()) &&
      host.find("..") == std::string_view::npos &&
      std::all_of(host.begin(), host.end(),
                  [](char c) { return is_alphanumeric(c) || c == '.' || c == '-'; });
  if (!good_host || colon == std::string_view::npos) {
    return good_host;
  }
  const std::string_view port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Parts of lower-case letters and digits, which may have single '.', '_' or dashes inside.
bool is_repository(std::string_view text) {
  if (text.empty() || text.size() > kLongestRepository) {
    return false;
  }
  bool may_end = false;
  char last = '/';
  for (const char c : text) {
    const bool joins = c == '.' || c == '_' || c == '-' || c == '/';
    const bool doubled = last == c && (c == '_' || c == '-');
    if (!is_lower_or_digit(c) && !(joins && (may_end || doubled))) {
      return false;
    }
    may_end = is_lower_or_digit(c);
    last = c;
  }
  return may_end;
}

bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= kLongestTag &&
         (is_alphanumeric(text.front()) || text.front() == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
}

}  // namespace

Result<Reference> parse_reference(std::string_view text) {
  Reference reference;
  std::string_view rest = text;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.digest = sha256_of(rest.substr(at + 1));
    if (reference.digest.empty()) {
      return bad_reference(text, "its digest is not sha256: and 64 hex digits");
    }
    rest = rest.substr(0, at);
  }
  reference.registry = kHub;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view first = rest.substr(0, slash);
    if (first == "localhost" || first.find_first_of(".:") != std::string_view::npos) {
      if (!is_registry(first)) {
        return bad_reference(text, "its registry is no host");
      }
      reference.registry = first == "index.docker.io" ? kHub : first;
      rest.remove_prefix(slash + 1);
    }
  }
  if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(reference.tag)) {
      return bad_reference(text, "its tag makes no sense");
    }
    rest = rest.substr(0, colon);
  } else if (reference.digest.empty()) {
    reference.tag = "latest";
  }
  const bool official = reference.registry == kHub && rest.find('/') == std::string_view::npos;
  reference.repository = (official ? std::string(kOfficial) : "") + std::string(rest);
  if (!is_repository(reference.repository)) {
    return bad_reference(text, "its name makes no sense");
  }
  if (!is_image_name(short_name(reference))) {
    return bad_reference(text, "its name is too long");
  }
  return reference;
}

std::string to_string(const Reference& reference) {
  return reference.registry + "/" + reference.repository +
         (reference.tag.empty() ? "" : ":" + reference.tag) +
         (reference.digest.empty() ? "" : "@sha256:" + reference.digest);
}

std::string short_name(const Reference& reference) {
  std::string name = reference.repository;
  if (reference.registry != kHub) {
    name.insert(0, reference.registry + "/");
  } else if (name.starts_with(kOfficial)) {
    name.erase(0, kOfficial.size());
  }
  return name + ":" +
         (reference.tag.empty() ? "sha256-" + reference.digest.substr(0, 12) : reference.tag);
}

}  // namespace carrel::storage
