#pragma once

#include <cstdint>
#include <vector>

#include "base/parsed.h"
#include "egress/dns_message.h"
#include "policy/host.h"

namespace carrel::egress {

// What we ask a resolver of the host. `name` is a name.
struct DnsLookup {
  std::uint16_t id = 0;
  policy::Host name;
  DnsType type = DnsType::kA;
};
std::vector<std::uint8_t> write_dns_lookup(const DnsLookup& lookup);

struct DnsAnswer {
  DnsCode code = DnsCode::kNoError;
  bool truncated = false;  // ask again over TCP
  std::vector<policy::IpAddress> addresses;
};
// The answer to a lookup: addresses of the name, or of what at most 16 aliases lead to. Refused:
// another id or question, names that point forward or in circles, and lengths that do not add up.
Parsed<DnsAnswer> parse_dns_answer(Bytes message, const DnsLookup& lookup);

}  // namespace carrel::egress
