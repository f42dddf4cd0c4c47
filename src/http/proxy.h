#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "http/url.h"

namespace carrel::http {

// What the environment says about proxies, as curl reads it: https_proxy, http_proxy (in lower case
// alone: a CGI program has the other one from its client), all_proxy and no_proxy.
struct ProxySettings {
  std::string https;
  std::string http;
  std::string exceptions;  // names, with what is below them, addresses, or "*"; by commas

  static ProxySettings from_environment();
};

struct Proxy {
  std::string host;
  std::uint16_t port = 0;
  std::string authorization;  // for the proxy; empty: none
};

// The proxy on the way to `url`, if there is one. Nothing on this host is reached through a proxy.
Result<std::optional<Proxy>> proxy_for(const Url& url, const ProxySettings& settings);

// "Basic ..." for a name and a password.
std::string basic_authorization(std::string_view user, std::string_view password);

}  // namespace carrel::http
