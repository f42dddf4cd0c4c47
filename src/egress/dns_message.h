#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/parsed.h"
#include "dns/message.h"
#include "policy/host.h"

namespace carrel::egress {

inline constexpr std::uint32_t kDnsTtl = 60;

// A question of a program in the sandbox.
struct DnsQuery {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  std::optional<policy::Host> name;  // nothing: it is none that a host can have
  std::string shown_name;            // for the log: what was asked, printable
  std::uint16_t type = 0;
  std::uint16_t klass = 1;
  std::vector<std::uint8_t> question;      // as it came, for the answer
  std::optional<std::uint16_t> edns_size;  // how much fits in a datagram, if it said so
};

// One whole message. Refused: responses, other operations than QUERY, more or fewer questions than
// one, compressed names, bytes that are left over.
Parsed<DnsQuery> parse_dns_query(Bytes message);

enum class DnsTransport { kUdp, kTcp };
// The answer with the addresses that are of the type that was asked for. What does not fit in a
// datagram is cut and says so.
std::vector<std::uint8_t> write_dns_answer(const DnsQuery& query, dns::ResponseCode code,
                                           const std::vector<policy::IpAddress>& addresses,
                                           DnsTransport transport);
// The answer to what was refused; nothing if not even an id is there, or if it is a response.
std::optional<std::vector<std::uint8_t>> write_dns_format_error(Bytes message);

}  // namespace carrel::egress
