#pragma once

#include <array>
#include <cstdint>

#include "base/parsed.h"
#include "policy/host.h"

namespace carrel::egress {

// What the server says about a request, in the words of RFC 1928.
enum class Socks5Reply : std::uint8_t {
  kSucceeded = 0,
  kFailure = 1,
  kNotAllowed = 2,
  kNetworkUnreachable = 3,
  kHostUnreachable = 4,
  kRefused = 5,
  kTtlExpired = 6,
  kUnknownCommand = 7,
  kUnknownAddressType = 8,
};

struct Socks5Greeting {
  bool no_password = false;  // the client can do without a login
};
struct Socks5Request {
  policy::Host host;
  std::uint16_t port = 0;
  Socks5Reply refusal = Socks5Reply::kFailure;  // what to answer if it is refused
};

Parsed<Socks5Greeting> parse_socks5_greeting(Bytes bytes);
// CONNECT to a name or an address. BIND, UDP ASSOCIATE, port 0, and names without a canonical form
// are refused; `value.refusal` says how.
Parsed<Socks5Request> parse_socks5_request(Bytes bytes);

// The answer to a greeting: no login is needed, or no common method.
std::array<std::uint8_t, 2> socks5_method(const Socks5Greeting& greeting);
std::array<std::uint8_t, 10> socks5_reply(Socks5Reply reply);

}  // namespace carrel::egress
