#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::policy {

// An IPv4 or IPv6 address. An IPv4-mapped one (::ffff:a.b.c.d) is the IPv4 address: the kernel
// dials the same machine for both.
class IpAddress {
 public:
  using V4 = std::array<std::uint8_t, 4>;
  using V6 = std::array<std::uint8_t, 16>;

  IpAddress() = default;  // 0.0.0.0
  static IpAddress from(const V4& bytes);
  static IpAddress from(const V6& bytes);
  // Four decimal numbers without leading zeros, or IPv6 without brackets and zone. Nothing else:
  // 0x7f.1, 127.1, 2130706433 and 0177.0.0.1 are no addresses here.
  static std::optional<IpAddress> parse(std::string_view text);

  [[nodiscard]] bool is_v4() const { return size_ == 4; }
  // 4 or 16, in network order.
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {bytes_.data(), size_}; }
  [[nodiscard]] std::string text() const;  // as in RFC 5952
  bool operator==(const IpAddress&) const = default;
  auto operator<=>(const IpAddress&) const = default;

 private:
  std::uint8_t size_ = 4;
  V6 bytes_{};
};

// What kind of place an address is. Only kPublic can be reached without being listed literally.
enum class AddressClass {
  kPublic,
  kThisNetwork,    // 0.0.0.0/8, ::
  kLoopback,       // 127.0.0.0/8, ::1
  kPrivate,        // 10/8, 172.16/12, 192.168/16, and what IPv6 had before unique local addresses
  kSharedNat,      // 100.64.0.0/10
  kLinkLocal,      // 169.254.0.0/16, fe80::/10
  kUniqueLocal,    // fc00::/7
  kMulticast,      // 224.0.0.0/4, ff00::/8
  kBroadcast,      // 255.255.255.255
  kDocumentation,  // 192.0.2.0/24 and its like
  kBenchmark,      // 198.18.0.0/15, where a sandbox's own synthetic addresses are too
  kReserved,       // everything else that nobody has
  kMetadata,       // where clouds keep the credentials of their machines
};

// The class of an address, or of the IPv4 address that it wraps (6to4, NAT64, IPv4-compatible).
AddressClass classify(const IpAddress& address);
// "a private address", for messages.
std::string_view describe(AddressClass address_class);
// The IPv4 address that a 6to4, NAT64 or IPv4-compatible address leads to.
std::optional<IpAddress> embedded_v4(const IpAddress& address);

// Addresses that begin with the same bits. The others are zero.
struct Prefix {
  IpAddress base;
  std::uint8_t length = 32;

  // "10.0.0.0/8", "fd00::/8", or an address, which is a prefix with all its bits.
  static Result<Prefix> parse(std::string_view text);
  static Prefix of(const IpAddress& address);

  [[nodiscard]] bool contains(const IpAddress& address) const;
  [[nodiscard]] bool contains(const Prefix& other) const;
  [[nodiscard]] bool is_one_address() const;
  [[nodiscard]] std::string text() const;
  bool operator==(const Prefix&) const = default;
};

}  // namespace carrel::policy
