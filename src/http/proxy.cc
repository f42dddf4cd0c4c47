#include "http/proxy.h"

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/ascii.h"
#include "base/base64.h"

namespace carrel::http {

namespace {

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = ::secure_getenv(name); value != nullptr && *value != '\0') {
      return value;
    }
  }
  return {};
}

// Whether a host is one of the exceptions: "example.org" and ".example.org" mean it and all below.
bool is_exception(const Url& url, std::string_view list) {
  while (!list.empty()) {
    const std::size_t end = list.find_first_of(", ");
    std::string entry = lower(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    if (entry.ends_with(":" + std::to_string(url.port))) {
      entry.resize(entry.rfind(':'));
    }
    while (entry.starts_with('.') || entry.starts_with("*.")) {
      entry.erase(0, 1);
    }
    if (entry == "*" ||
        (!entry.empty() && (url.host == entry || url.host.ends_with("." + entry)))) {
      return true;
    }
  }
  return false;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
                         hex_value(text[i + 2]) >= 0;
    result +=
        escaped ? static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])) : text[i];
    i += escaped ? 2 : 0;
  }
  return result;
}

}  // namespace

ProxySettings ProxySettings::from_environment() {
  ProxySettings settings;
  settings.https = first_of({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  settings.http = first_of({"http_proxy", "all_proxy", "ALL_PROXY"});
  settings.exceptions = first_of({"no_proxy", "NO_PROXY"});
  return settings;
}

Result<std::optional<Proxy>> proxy_for(const Url& url, const ProxySettings& settings) {
  std::string text = url.scheme == Scheme::kHttps ? settings.https : settings.http;
  if (text.empty() || is_loopback(url.host) || is_exception(url, settings.exceptions)) {
    return std::optional<Proxy>();
  }
  if (text.find("://") == std::string::npos) {
    text.insert(0, "http://");
  }
  Proxy proxy;
  const std::size_t begin = text.find("://") + 3;
  const std::size_t at = text.substr(0, text.find('/', begin)).rfind('@');
  if (at != std::string::npos && at >= begin) {
    const std::string user = text.substr(begin, at - begin);
    const std::size_t colon = user.find(':');
    proxy.authorization = basic_authorization(
        decoded(user.substr(0, colon)),
        colon == std::string::npos ? std::string() : decoded(user.substr(colon + 1)));
    text.erase(begin, at + 1 - begin);
  }
  auto where = parse_url(text);
  if (!where.ok() || where.value().scheme != Scheme::kHttp) {
    return Error{Code::kUnsupported, 0, "the environment names a proxy that cannot be used",
                 "https_proxy and http_proxy are http://HOST:PORT"};
  }
  proxy.host = where.value().host;
  proxy.port = where.value().port;
  return std::optional(std::move(proxy));
}

std::string basic_authorization(std::string_view user, std::string_view password) {
  return "Basic " + base64(std::string(user) + ":" + std::string(password));
}

}  // namespace carrel::http
