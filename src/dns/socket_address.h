#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "policy/address_class.h"

namespace carrel::dns {

// An address of a host. `scope` is the interface of a link-local one, 0 otherwise.
struct Address {
  policy::IpAddress ip;
  std::uint32_t scope = 0;

  // An address, with a zone (fe80::1%eth0, fe80::1%2) if it is one of IPv6. Nothing: it is none, or
  // there is no such interface.
  static std::optional<Address> parse(std::string_view text);
  bool operator==(const Address&) const = default;
};

// An address for the kernel.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  static SocketAddress of(const policy::IpAddress& address, std::uint16_t port);
  static SocketAddress of(const Address& address, std::uint16_t port);
  // Nothing: it is of no internet family.
  [[nodiscard]] std::optional<policy::IpAddress> address() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

}  // namespace carrel::dns
