// Hosts: what has a canonical form is that form's own, is made of nothing else than a name or an
// address is, and is decided on as it was written; every error is one short line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/decide.h"
#include "policy/given.h"
#include "policy/host.h"
#include "policy/network.h"

namespace {

namespace policy = carrel::policy;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void require_short_line(const carrel::Error& error) {
  const std::string text = error.to_string();
  require(text.size() < 600);
  require(policy::shape_of(text) == policy::TextShape::kPlain);
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

void check_policy(std::string_view text) {
  const auto network = policy::parse_network({"--network", text});
  if (!network.ok()) {
    require_short_line(network.error());
    return;
  }
  const std::string canonical = policy::network_text(network.value());
  const auto again = policy::parse_network({"--network", canonical});
  require(again.ok() && again.value() == network.value());
  const auto json = policy::network_from_json(policy::network_to_json(network.value()));
  require(json.ok() && json.value() == network.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_policy(text);
  const auto host = policy::canonical_host(text);
  if (!host.ok()) {
    require_short_line(host.error());
    return 0;
  }
  const std::string& name = host.value().text();
  const auto again = policy::canonical_host(name);
  require(again.ok() && again.value() == host.value());
  static const policy::NetworkPolicy kPolicy =
      policy::parse_network({"x", "allow=a.org,*.b.org,tcp:10.0.0.0/8:443,deny:x.b.org"}).value();
  const policy::Flow flow{host.value(), 443, policy::TlsHello{host.value()}};
  const policy::Verdict verdict = policy::decide(kPolicy, flow);
  require(verdict.outcome ==
          policy::decide(kPolicy, {again.value(), 443, policy::TlsHello{again.value()}}).outcome);
  if (host.value().is_name()) {
    require(name.size() <= policy::kLongestHostName);
    require(std::all_of(name.begin(), name.end(), is_name_character));
    require(!policy::IpAddress::parse(name).has_value());
    require(verdict.allowed() ==
            (name == "a.org" || (name.ends_with(".b.org") && name != "x.b.org")));
  } else {
    require(policy::IpAddress::parse(name) == *host.value().address());
    require(verdict.allowed() == name.starts_with("10."));
    const bool dialled = policy::may_dial(policy::parse_network({"x", "full"}).value(), flow,
                                          *host.value().address(), {})
                             .allowed();
    require(dialled ==
            (policy::classify(*host.value().address()) == policy::AddressClass::kPublic));
  }
  return 0;
}
