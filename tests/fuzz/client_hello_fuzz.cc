// First flights of TLS clients, in two pieces: read or refused, and a name is a canonical one.
#include <cstddef>
#include <cstdint>

#include "egress/client_hello.h"
#include "egress/sniff.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace egress = carrel::egress;
  using carrel::fuzz::require;
  const auto result =
      carrel::fuzz::parse_in_pieces(carrel::Bytes(data, size), egress::parse_client_hello);
  if (!result.parsed()) {
    return 0;
  }
  require(egress::sniff(carrel::Bytes(data, size).subspan(1)) == egress::Sniffed::kTls);
  if (result.value.server_name.has_value()) {
    const auto again = carrel::policy::canonical_host(result.value.server_name->text());
    require(again.ok() && again.value() == *result.value.server_name);
  }
  for (const auto& protocol : result.value.protocols) {
    require(!protocol.empty() && protocol.size() < 256);
  }
  return 0;
}
