#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egress/parsed.h"

namespace carrel::egress {

inline constexpr std::size_t kLargestClientHello = 16U << 10;

// What a TLS client says before anything is secret.
struct ClientHello {
  std::optional<std::string> server_name;  // as it was sent: not canonical
  std::vector<std::string> protocols;      // ALPN, such as "h2"
  bool encrypted_hello = false;            // encrypted_client_hello: the real name is hidden
};

// The first flight of a TLS client, in one record or in many. Refused: what is not a ClientHello,
// is larger than kLargestClientHello, has lengths that do not add up, an extension twice, more than
// one server name, or one that is not a host name.
Parsed<ClientHello> parse_client_hello(Bytes bytes);

}  // namespace carrel::egress
