// Clients of SOCKS, in two pieces: read or refused, and never with a name that is not canonical.
#include <cstddef>
#include <cstdint>

#include "egress/socks5.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace egress = carrel::egress;
  using carrel::fuzz::require;
  const carrel::Bytes bytes(data, size);
  (void)carrel::fuzz::parse_in_pieces(bytes, egress::parse_socks5_greeting);
  const auto request = carrel::fuzz::parse_in_pieces(bytes, egress::parse_socks5_request);
  if (request.parsed()) {
    require(request.value.port != 0);
    const auto again = carrel::policy::canonical_host(request.value.host.text());
    require(again.ok() && again.value() == request.value.host);
  } else if (request.is_refused()) {
    require(request.value.refusal != egress::Socks5Reply::kSucceeded);
  }
  return 0;
}
