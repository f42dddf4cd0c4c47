#include "egress/upstream.h"

#include <cerrno>
#include <charconv>
#include <utility>

#include "base/files.h"
#include "http/url.h"
#include "policy/config.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kLargest = 16U << 10;
constexpr std::size_t kLongestLogin = 255;  // what SOCKS5 can say

Error wrong(std::string what) {
  return Error{Code::kInvalid, 0, std::string(Upstream::kFile) + ": " + std::move(what),
               "such as proxy = \"http://proxy.example.org:3128\""};
}

// Nothing that could end a line or a field.
bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c > '~') {
      return false;
    }
  }
  return text.size() <= kLongestLogin;
}

Status read_login(std::string_view login, ParentProxy& proxy) {
  const std::size_t colon = login.find(':');
  if (colon == std::string_view::npos || colon == 0 || !is_plain(login)) {
    return wrong("the login of the proxy is not USER:PASSWORD");
  }
  proxy.user = login.substr(0, colon);
  proxy.password = login.substr(colon + 1);
  return {};
}

Result<ParentProxy> parse_proxy(std::string_view text) {
  ParentProxy proxy;
  if (text.starts_with("http://")) {
    text.remove_prefix(std::string_view("http://").size());
  } else if (text.starts_with("socks5://") || text.starts_with("socks5h://")) {
    proxy.kind = ParentProxy::Kind::kSocks5;
    text.remove_prefix(text.find("://") + 3);
  } else {
    return wrong("a proxy is http://HOST:PORT or socks5://HOST:PORT");
  }
  if (text.ends_with('/')) {
    text.remove_suffix(1);
  }
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    CARREL_TRY(read_login(text.substr(0, at), proxy));
    text.remove_prefix(at + 1);
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return wrong("the proxy has no port");
  }
  const std::string_view port = text.substr(colon + 1);
  const auto read = std::from_chars(port.data(), port.data() + port.size(), proxy.port);
  if (read.ec != std::errc() || read.ptr != port.data() + port.size() || proxy.port == 0) {
    return wrong("the proxy's port is no port");
  }
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  auto canonical = policy::canonical_host(host);
  if (!canonical.ok()) {
    return wrong("the proxy's host is none: " + canonical.error().message);
  }
  proxy.host = std::move(canonical.value());
  return proxy;
}

Result<DohServer> parse_resolver(std::string_view text) {
  auto url = http::parse_url(text);
  if (!url.ok() || url->scheme != http::Scheme::kHttps) {
    return wrong("a resolver is https://HOST/PATH" +
                 (url.ok() ? std::string() : ": " + url.error().message));
  }
  DohServer server;
  auto host = policy::canonical_host(url->host);
  if (!host.ok()) {
    return wrong("the resolver's host is none: " + host.error().message);
  }
  server.host = std::move(host.value());
  server.port = url->port;
  server.path = url->target;
  return server;
}

}  // namespace

std::string ParentProxy::text() const {
  return (kind == Kind::kHttp ? "http://" : "socks5://") + policy::endpoint_text(host, port);
}

Result<UpstreamSettings> parse_upstream(std::string_view text) {
  CARREL_ASSIGN(const auto strings, policy::parse_strings(text, Upstream::kFile));
  UpstreamSettings settings;
  for (const auto& [key, value] : strings) {
    if (key == "proxy") {
      CARREL_ASSIGN(settings.proxy, parse_proxy(value));
    } else if (key == "resolver") {
      CARREL_ASSIGN(settings.resolver, parse_resolver(value));
    } else {
      return wrong("there is no setting '" + key + "'");
    }
  }
  return settings;
}

Result<UpstreamSettings> Upstream::current() {
  auto text = read_file_at(directory_, kFile, kLargest);
  const bool missing = !text.ok() && text.error().error_number == ENOENT;
  const std::string now = text.ok() ? text.value() : "";
  if (!text.ok() && !missing) {
    if (!settings_.has_value()) {
      return text.error();
    }
    return *settings_;
  }
  if (seen_ != now) {
    seen_ = now;
    auto parsed = parse_upstream(now);
    if (parsed.ok()) {
      settings_ = std::move(parsed.value());
    } else {
      complaint_ = parsed.error().message +
                   (settings_.has_value() ? "; what held before goes on" : "; nothing is dialled");
    }
  }
  if (!settings_.has_value()) {
    return wrong("it cannot be read, and nothing held before");
  }
  return *settings_;
}

}  // namespace carrel::egress
