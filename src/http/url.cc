#include "http/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace carrel::http {

namespace {

constexpr std::size_t kLongestUrl = 8192;
constexpr std::size_t kLongestHost = 253;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
Error bad_url(std::string_view text, const char* why) {
  std::string shown(text.substr(0, 200));
  for (char& c : shown) {
    c = c < ' ' || c > '~' ? '?' : c;
  }
  return Error{Code::kInvalid, 0, "'" + shown + "' is not a URL that can be used: " + why, {}};
}

bool is_host(std::string_view host) {
  if (host.empty() || host.size() > kLongestHost || host.front() == '-' || host.front() == '.') {
    return false;
  }
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return is_alphanumeric(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_ipv6(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// "host", "host:port" or "[address]:port" into `url`.
bool read_authority(std::string_view text, Url& url) {
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) {
      return false;
    }
    url.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!is_ipv6(url.host) || (!port.empty() && port.front() != ':')) {
      return false;
    }
  } else {
    const std::size_t colon = text.find(':');
    url.host = text.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
    if (!is_host(url.host)) {
      return false;
    }
  }
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](char c) { return lower(c); });
  if (port.empty()) {
    return true;
  }
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  return error == std::errc() && end == port.data() + port.size() && url.port != 0;
}

bool has_scheme(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && colon < text.find_first_of("/?#");
}

std::string_view without_fragment(std::string_view text) { return text.substr(0, text.find('#')); }

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kLongestUrl) {
    return bad_url(text, "it is too long");
  }
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return bad_url(text, "it has characters that a URL cannot have");
  }
  Url url;
  const std::size_t colon = text.find("://");
  std::string scheme(text.substr(0, colon == std::string_view::npos ? 0 : colon));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), [](char c) { return lower(c); });
  if (scheme != "http" && scheme != "https") {
    return bad_url(text, "it begins with neither https:// nor http://");
  }
  url.scheme = scheme == "http" ? Scheme::kHttp : Scheme::kHttps;
  url.port = url.scheme == Scheme::kHttp ? 80 : 443;
  const std::string_view rest = without_fragment(text.substr(colon + 3));
  const std::size_t end = rest.find_first_of("/?");
  const std::string_view where = rest.substr(0, end);
  if (where.find('@') != std::string_view::npos) {
    return bad_url(where.substr(where.find('@')), "it has a user name");
  }
  if (!read_authority(where, url)) {
    return bad_url(text, "its host or port makes no sense");
  }
  if (end != std::string_view::npos) {
    url.target = (rest[end] == '?' ? "/" : "") + std::string(rest.substr(end));
  }
  return url;
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  const std::string scheme = base.scheme == Scheme::kHttp ? "http:" : "https:";
  if (has_scheme(location)) {
    return parse_url(location);
  }
  if (location.starts_with("//")) {
    return parse_url(scheme + std::string(location));
  }
  const std::string root = scheme + "//" + authority(base);
  if (location.starts_with('/')) {
    return parse_url(root + std::string(location));
  }
  const std::string_view path = std::string_view(base.target).substr(0, base.target.find('?'));
  return parse_url(root + std::string(path.substr(0, path.rfind('/') + 1)) + std::string(location));
}

std::string authority(const Url& url) {
  const bool bare = url.host.find(':') != std::string::npos;
  const std::uint16_t usual = url.scheme == Scheme::kHttp ? 80 : 443;
  return (bare ? "[" + url.host + "]" : url.host) +
         (url.port == usual ? "" : ":" + std::to_string(url.port));
}

std::string to_string(const Url& url) {
  return (url.scheme == Scheme::kHttp ? "http://" : "https://") + authority(url) +
         url.target.substr(0, url.target.find('?'));
}

bool same_origin(const Url& one, const Url& other) {
  return one.scheme == other.scheme && one.host == other.host && one.port == other.port;
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost")) {
    return true;
  }
  const std::string text(host);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) {
    return ntohl(four.s_addr) >> 24 == 127;
  }
  in6_addr six{};
  return ::inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool leads_here(std::string_view host) {
  if (host.ends_with('.')) {  // as a resolver takes it
    host.remove_suffix(1);
  }
  // Linux connects to this host when it is told to connect to no address.
  if (is_loopback(host) || host == "0.0.0.0") {
    return true;
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, std::string(host).c_str(), &six) != 1) {
    return false;
  }
  constexpr std::size_t kMapped = 12;  // where the IPv4 address of ::ffff:127.0.0.1 begins
  return IN6_IS_ADDR_UNSPECIFIED(&six) ||
         (IN6_IS_ADDR_V4MAPPED(&six) && (six.s6_addr[kMapped] == 127 || six.s6_addr32[3] == 0));
}

std::string encode_query(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace carrel::http
