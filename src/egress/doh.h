#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "dns/message.h"
#include "egress/loop.h"
#include "egress/tls_servers.h"
#include "policy/host.h"

namespace carrel::egress {

// A resolver that is asked over HTTPS (RFC 8484).
struct DohServer {
  policy::Host host;
  std::uint16_t port = 443;
  std::string path = "/dns-query";

  bool operator==(const DohServer&) const = default;
};

// One question, on a connection of its own to that address of the server. CRITICAL: its certificate
// has to be good for the host; there is no way around it.
Task<Result<dns::Answer>> ask_over_https(Loop& loop, TlsServers& servers, DohServer server,
                                         policy::IpAddress address, dns::Lookup lookup);

}  // namespace carrel::egress
