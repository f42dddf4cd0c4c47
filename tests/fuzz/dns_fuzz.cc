// DNS in both directions. A query is read or refused, and its answer is one to the same question
// and fits; an answer gives addresses only to the lookup that it is for.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dns/message.h"
#include "egress/dns_message.h"
#include "tests/fuzz/pieces.h"

namespace {

namespace dns = carrel::dns;
namespace egress = carrel::egress;
namespace policy = carrel::policy;
using carrel::fuzz::require;

void check_query(carrel::Bytes message) {
  const auto query = egress::parse_dns_query(message);
  require(!query.needs_more());
  if (!query.parsed()) {
    const auto error = egress::write_dns_format_error(message);
    require(!error.has_value() || error->size() == 12);
    return;
  }
  static const std::vector<policy::IpAddress> kAddresses = {*policy::IpAddress::parse("198.18.0.7"),
                                                            *policy::IpAddress::parse("fd00::7")};
  const auto answer = egress::write_dns_answer(query.value, dns::ResponseCode::kNoError, kAddresses,
                                               egress::DnsTransport::kUdp);
  require(answer.size() <= 1232 && answer.size() >= 12);
  require(egress::parse_dns_query(answer).is_refused());
  const bool address = query.value.type == 1 || query.value.type == 28;
  if (!query.value.name.has_value() || !address || query.value.klass != 1) {
    require(answer[7] == 0 || address);
    return;
  }
  const dns::Lookup lookup{query.value.id, *query.value.name,
                           static_cast<dns::RecordType>(query.value.type)};
  const auto back = dns::parse_answer(answer, lookup);
  require(back.parsed() && back.value.addresses.size() == 1);
  // And what we ask ourselves is a query, with EDNS and without.
  dns::Lookup large = lookup;
  large.edns_size = dns::kSafeDatagram;
  for (const dns::Lookup& asked : {lookup, large}) {
    const auto own = egress::parse_dns_query(dns::write_lookup(asked));
    require(own.parsed() && own.value.name == query.value.name);
    require(own.value.edns_size == asked.edns_size);
  }
}

void check_answer(carrel::Bytes message) {
  for (const auto type : {dns::RecordType::kA, dns::RecordType::kAaaa}) {
    const dns::Lookup lookup{0x1234, policy::canonical_host("a.org").value(), type};
    const auto answer = dns::parse_answer(message, lookup);
    require(!answer.needs_more());
    if (answer.parsed()) {
      require(answer.value.code == dns::ResponseCode::kNoError || answer.value.addresses.empty());
      require(!answer.value.truncated || answer.value.addresses.empty());
      require(answer.value.addresses.size() <= 256);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const carrel::Bytes message(data, size);
  check_query(message);
  check_answer(message);
  return 0;
}
