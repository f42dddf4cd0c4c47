#include "egress/socks5.h"

#include <algorithm>

#include "base/byte_reader.h"

namespace carrel::egress {
namespace {

constexpr std::uint8_t kVersion = 5;
constexpr std::uint8_t kConnect = 1;
constexpr std::uint8_t kNoPassword = 0;
constexpr std::uint8_t kNoCommonMethod = 0xff;
constexpr std::uint8_t kV4 = 1;
constexpr std::uint8_t kName = 3;
constexpr std::uint8_t kV6 = 4;

using ParsedRequest = Parsed<Socks5Request>;

ParsedRequest refused(Socks5Reply reply, std::string_view reason) {
  ParsedRequest request = ParsedRequest::refused(reason);
  request.value.refusal = reply;
  return request;
}

// The address or name of a request, all of it.
std::optional<policy::Host> read_host(std::uint8_t type, Bytes bytes) {
  if (type == kName) {
    auto host = policy::canonical_host(as_text(bytes));
    return host.ok() ? std::optional(std::move(host.value())) : std::nullopt;
  }
  if (type == kV4) {
    policy::IpAddress::V4 address{};
    std::copy(bytes.begin(), bytes.end(), address.begin());
    return policy::Host(policy::IpAddress::from(address));
  }
  policy::IpAddress::V6 address{};
  std::copy(bytes.begin(), bytes.end(), address.begin());
  return policy::Host(policy::IpAddress::from(address));
}

}  // namespace

Parsed<Socks5Greeting> parse_socks5_greeting(Bytes bytes) {
  using Greeting = Parsed<Socks5Greeting>;
  if (!bytes.empty() && bytes[0] != kVersion) {
    return Greeting::refused("it is not SOCKS 5");
  }
  if (bytes.size() < 2) {
    return Greeting::need_more();
  }
  const std::size_t count = bytes[1];
  if (count == 0) {
    return Greeting::refused("it offers no way to log in");
  }
  if (bytes.size() < 2 + count) {
    return Greeting::need_more();
  }
  const Bytes methods = bytes.subspan(2, count);
  const bool open = std::find(methods.begin(), methods.end(), kNoPassword) != methods.end();
  return Greeting::done({open}, 2 + count);
}

Parsed<Socks5Request> parse_socks5_request(Bytes bytes) {
  if (!bytes.empty() && bytes[0] != kVersion) {
    return refused(Socks5Reply::kFailure, "it is not SOCKS 5");
  }
  if (bytes.size() > 1 && bytes[1] != kConnect) {
    return refused(Socks5Reply::kUnknownCommand, "only CONNECT is served");
  }
  if (bytes.size() > 2 && bytes[2] != 0) {
    return refused(Socks5Reply::kFailure, "a reserved byte is not zero");
  }
  if (bytes.size() < 5) {
    return ParsedRequest::need_more();
  }
  const std::uint8_t type = bytes[3];
  std::size_t start = 4;
  std::size_t size = 0;
  if (type == kName) {
    start = 5;
    size = bytes[4];
  } else if (type == kV4 || type == kV6) {
    size = type == kV4 ? 4 : 16;
  } else {
    return refused(Socks5Reply::kUnknownAddressType, "the type of its address is unknown");
  }
  if (bytes.size() < start + size + 2) {
    return ParsedRequest::need_more();
  }
  std::optional<policy::Host> host = read_host(type, bytes.subspan(start, size));
  if (!host.has_value()) {
    return refused(Socks5Reply::kNotAllowed, "its name is not a host name");
  }
  const std::uint16_t port = ByteReader(bytes.subspan(start + size)).u16();
  if (port == 0) {
    return refused(Socks5Reply::kNotAllowed, "no connection goes to port 0");
  }
  return ParsedRequest::done({std::move(*host), port, Socks5Reply::kFailure}, start + size + 2);
}

std::array<std::uint8_t, 2> socks5_method(const Socks5Greeting& greeting) {
  return {kVersion, greeting.no_password ? kNoPassword : kNoCommonMethod};
}

std::array<std::uint8_t, 10> socks5_reply(Socks5Reply reply) {
  // The address that we are bound to is nobody's business.
  return {kVersion, static_cast<std::uint8_t>(reply), 0, kV4, 0, 0, 0, 0, 0, 0};
}

}  // namespace carrel::egress
