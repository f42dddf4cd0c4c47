#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::http {

enum class Scheme { kHttp, kHttps };

// Where a request goes. Nothing in it can end a line or a word of a request.
struct Url {
  Scheme scheme = Scheme::kHttps;
  std::string host;  // lower case; an IPv6 address has no brackets
  std::uint16_t port = 443;
  std::string target = "/";  // path and query
};

// An absolute http or https URL. A fragment is dropped; user names, spaces, control and non-ASCII
// characters are refused.
Result<Url> parse_url(std::string_view text);

// What a Location header says, seen from `base`: absolute, "//host/path", "/path" or "path".
Result<Url> resolve_url(const Url& base, std::string_view location);

// Host and port, as far as they are not what the scheme says: for the Host header and messages.
std::string authority(const Url& url);
// Without the query, which may hold a secret.
std::string to_string(const Url& url);

bool same_origin(const Url& one, const Url& other);

// `localhost`, 127.0.0.0/8 and ::1, by name alone: to there, nothing has to be encrypted.
bool is_loopback(std::string_view host);
// These, and everything else that leads to this host by its spelling: where nobody from elsewhere
// may send us.
bool leads_here(std::string_view host);

// The bytes of a text as they stand in a query: all but letters, digits and "-._~" as %XX.
std::string encode_query(std::string_view text);

}  // namespace carrel::http
