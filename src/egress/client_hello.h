#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/parsed.h"
#include "policy/host.h"

namespace carrel::egress {

inline constexpr std::size_t kLargestClientHello = 16U << 10;

// What a TLS client says before anything is secret.
struct ClientHello {
  std::optional<policy::Host> server_name;  // SNI
  std::vector<std::string> protocols;       // ALPN, such as "h2"
  bool encrypted_hello = false;             // ECH or what it is called: another name may be hidden
};

// The first flight of a TLS client, in one record or in many. Refused: what is not a ClientHello,
// is larger than kLargestClientHello or in too many records, has lengths that do not add up, an
// extension twice, more than one server name, or one that has no canonical form.
Parsed<ClientHello> parse_client_hello(Bytes bytes);

}  // namespace carrel::egress
