#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::storage {

// What a registry wants to see before it answers: a WWW-Authenticate header.
struct Challenge {
  enum class Scheme { kBasic, kBearer };
  Scheme scheme = Scheme::kBasic;
  std::string realm;  // of kBearer: the URL that gives tokens
  std::string service;
  std::string scope;
};

// The first scheme in it that we know; none: there is none.
std::optional<Challenge> parse_challenge(std::string_view header);

// The credentials for a registry in the text of a Docker configuration: the value of an
// Authorization header, or empty where there are none. Programs that it names are not run.
std::string credentials_in(std::string_view config, const std::string& registry);

// The same from the file of whoever runs this: $DOCKER_CONFIG/config.json or
// ~/.docker/config.json, which is only read.
Result<std::string> find_credentials(const std::string& registry);

// The token in the answer of a token server; empty: there is none.
std::string token_in(std::string_view answer);

}  // namespace carrel::storage
