#include "storage/images/registry_auth.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/ascii.h"
#include "base/files.h"
#include "storage/images/oci_json.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestToken = 32U << 10;

bool is_word_end(char c) { return c == ' ' || c == '\t' || c == ',' || c == '='; }

// Reads words, and values in quotes, from the front of a header.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  void skip(std::string_view what) {
    const std::size_t next = rest_.find_first_not_of(what);
    rest_.remove_prefix(next == std::string_view::npos ? rest_.size() : next);
  }
  std::string word() {
    const auto end = std::find_if(rest_.begin(), rest_.end(), is_word_end);
    std::string found(rest_.begin(), end);
    rest_.remove_prefix(found.size());
    return found;
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }
  std::string value() {
    if (!take('"')) {
      return word();
    }
    std::string found;
    while (!rest_.empty() && !take('"')) {
      if (rest_.front() == '\\' && rest_.size() > 1) {
        rest_.remove_prefix(1);
      }
      found += rest_.front();
      rest_.remove_prefix(1);
    }
    return found;
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// "https://index.docker.io/v1/" is "index.docker.io".
std::string host_in(std::string key) {
  if (const std::size_t scheme = key.find("://"); scheme != std::string::npos) {
    key.erase(0, scheme + 3);
  }
  return lower(key.substr(0, key.find('/')));
}

bool is_base64(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  });
}

}  // namespace

std::optional<Challenge> parse_challenge(std::string_view header) {
  Words words(header);
  std::optional<Challenge> challenge;
  bool known = false;
  while (words.skip(" \t,"), !words.empty()) {
    const std::string name = lower(words.word());
    words.skip(" \t");
    if (words.take('=')) {
      words.skip(" \t");
      const std::string value = words.value();
      if (known && name == "realm") {
        challenge->realm = value;
      } else if (known && name == "service") {
        challenge->service = value;
      } else if (known && name == "scope") {
        challenge->scope = value;
      }
      continue;
    }
    if (name.empty() || challenge.has_value()) {
      break;  // the next scheme, or something that is none
    }
    known = name == "bearer" || name == "basic";
    if (known) {
      challenge.emplace();
      challenge->scheme = name == "basic" ? Challenge::Scheme::kBasic : Challenge::Scheme::kBearer;
    }
  }
  return challenge;
}

std::string credentials_in(std::string_view config, const std::string& registry) {
  const Json document = Json::parse(config, nullptr, false);
  const Json& known = part_of(document, "auths");
  if (!known.is_object()) {
    return {};
  }
  const std::string host = registry == "docker.io" ? "index.docker.io" : lower(registry);
  for (const auto& [key, entry] : known.items()) {
    const std::string secret = text_of(entry, "auth");
    if (host_in(key) == host && is_base64(secret)) {
      return "Basic " + secret;
    }
  }
  return {};
}

Result<std::string> find_credentials(const std::string& registry) {
  std::string path;
  if (const char* folder = ::secure_getenv("DOCKER_CONFIG"); folder != nullptr && *folder != 0) {
    path = folder;
  } else if (const char* home = ::secure_getenv("HOME"); home != nullptr && *home != 0) {
    path = std::string(home) + "/.docker";
  } else {
    return std::string();
  }
  auto text = read_file_at(AT_FDCWD, path + "/config.json");
  if (!text.ok()) {
    const int failure = text.error().error_number;
    return failure == ENOENT || failure == ENOTDIR || failure == EACCES
               ? Result<std::string>(std::string())
               : Result<std::string>(text.error());
  }
  return credentials_in(text.value(), registry);
}

std::string token_in(std::string_view answer) {
  const Json document = Json::parse(answer, nullptr, false);
  std::string token = text_of(document, "token");
  if (token.empty()) {
    token = text_of(document, "access_token");
  }
  const bool good =
      token.size() <= kLongestToken &&
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  return good ? token : std::string();
}

}  // namespace carrel::storage
