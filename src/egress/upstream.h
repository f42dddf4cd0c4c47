#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "egress/doh.h"
#include "policy/host.h"

namespace carrel::egress {

// A proxy that leads to the internet where nothing else does.
struct ParentProxy {
  enum class Kind { kHttp, kSocks5 };
  Kind kind = Kind::kHttp;
  policy::Host host;
  std::uint16_t port = 0;
  std::string user;  // empty: it asks for no login
  std::string password;

  [[nodiscard]] std::string text() const;  // without the login
  bool operator==(const ParentProxy&) const = default;
};

// How this user's sandboxes get to the internet. The operator says it, and no sandbox.
struct UpstreamSettings {
  std::optional<ParentProxy> proxy;
  std::optional<DohServer> resolver;  // in place of the host's
  bool operator==(const UpstreamSettings&) const = default;
};

// `proxy = "http://[USER:PASSWORD@]HOST:PORT"`, or socks5://, and `resolver = "https://HOST/PATH"`,
// in TOML. Anything else is an error.
Result<UpstreamSettings> parse_upstream(std::string_view text);

// The settings in a file that may change at any time.
class Upstream {
 public:
  static constexpr const char* kFile = "egress.toml";

  // The file is in `directory`, which stays open.
  void open(int directory) { directory_ = directory; }

  // What holds now. A file that cannot be read leaves what held before; where nothing did, the
  // error stands: to go past a proxy that somebody meant to set is no way out.
  Result<UpstreamSettings> current();
  // What is wrong with the file, once for each text that it had; empty: nothing new.
  std::string take_complaint() { return std::exchange(complaint_, {}); }

 private:
  int directory_ = -1;
  std::optional<std::string> seen_;
  std::optional<UpstreamSettings> settings_;
  std::string complaint_;
};

}  // namespace carrel::egress
