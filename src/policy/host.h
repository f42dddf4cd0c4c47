#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/address_class.h"

namespace carrel::policy {

inline constexpr std::size_t kLongestHostName = 253;
inline constexpr std::size_t kLongestHostLabel = 63;

// Where a connection goes, in the one spelling that everything compares, decides on and dials: a
// DNS name in lower-case ASCII without a dot at its end, or an address.
class Host {
 public:
  Host() = default;  // 0.0.0.0, which no policy lets anybody reach
  explicit Host(const IpAddress& address) : text_(address.text()), address_(address) {}

  [[nodiscard]] bool is_name() const { return !address_.has_value(); }
  // Null for a name.
  [[nodiscard]] const IpAddress* address() const { return address_ ? &*address_ : nullptr; }
  // Without brackets.
  [[nodiscard]] const std::string& text() const { return text_; }
  bool operator==(const Host&) const = default;

 private:
  friend Result<Host> canonical_host(std::string_view text);
  std::string text_ = "0.0.0.0";
  std::optional<IpAddress> address_ = IpAddress();
};

// The canonical form of a host as somebody wrote it, or why it has none. Letters become lower case,
// one dot at the end is dropped, labels in other scripts become punycode where that can be done in
// one way only. Refused are NUL, spaces, control characters and everything else that is not of a
// name; empty and too long labels; and what some programs read as an address and others as a name:
// a last label that is a number. An IPv6 address comes without brackets and has no zone.
Result<Host> canonical_host(std::string_view text);

// "host:port", with brackets around an IPv6 address.
std::string endpoint_text(const Host& host, std::uint16_t port);

}  // namespace carrel::policy
