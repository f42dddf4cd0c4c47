#include "dns/socket_address.h"

#include <net/if.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace carrel::dns {
namespace {

// The number of an interface; 0: there is none.
std::uint32_t interface_of(std::string_view zone) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(zone.data(), zone.data() + zone.size(), number);
  if (error == std::errc() && end == zone.data() + zone.size()) {
    return number;
  }
  return zone.size() < IF_NAMESIZE ? ::if_nametoindex(std::string(zone).c_str()) : 0;
}

}  // namespace

std::optional<Address> Address::parse(std::string_view text) {
  const std::size_t percent = text.find('%');
  const auto ip = policy::IpAddress::parse(text.substr(0, percent));
  if (!ip.has_value() || percent == std::string_view::npos) {
    return ip.has_value() ? std::optional(Address{*ip}) : std::nullopt;
  }
  const std::uint32_t scope = ip->is_v4() ? 0 : interface_of(text.substr(percent + 1));
  return scope == 0 ? std::nullopt : std::optional(Address{*ip, scope});
}

SocketAddress SocketAddress::of(const policy::IpAddress& address, std::uint16_t port) {
  SocketAddress result;
  if (address.is_v4()) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, address.bytes().data(), sizeof four.sin_addr);
    std::memcpy(&result.storage, &four, sizeof four);
    result.size = sizeof four;
  } else {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.bytes().data(), sizeof six.sin6_addr);
    std::memcpy(&result.storage, &six, sizeof six);
    result.size = sizeof six;
  }
  return result;
}

std::optional<policy::IpAddress> SocketAddress::address() const {
  if (storage.ss_family == AF_INET) {
    policy::IpAddress::V4 bytes{};
    sockaddr_in four{};
    std::memcpy(&four, &storage, sizeof four);
    std::memcpy(bytes.data(), &four.sin_addr, bytes.size());
    return policy::IpAddress::from(bytes);
  }
  if (storage.ss_family == AF_INET6) {
    policy::IpAddress::V6 bytes{};
    sockaddr_in6 six{};
    std::memcpy(&six, &storage, sizeof six);
    std::memcpy(bytes.data(), &six.sin6_addr, bytes.size());
    return policy::IpAddress::from(bytes);
  }
  return std::nullopt;
}

std::uint16_t SocketAddress::port() const {
  sockaddr_in either{};  // the port is at the same place in both
  std::memcpy(&either, &storage, sizeof either);
  return ntohs(either.sin_port);
}

SocketAddress SocketAddress::of(const Address& address, std::uint16_t port) {
  SocketAddress result = of(address.ip, port);
  if (!address.ip.is_v4()) {
    reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_scope_id = address.scope;
  }
  return result;
}

}  // namespace carrel::dns
