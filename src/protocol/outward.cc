#include "protocol/outward.h"

#include <string.h>

#include "protocol/wire.h"

namespace carrel::protocol {

namespace {

bool is_zero(const unsigned char* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

void write_outward(const Outward& outward, unsigned char* data) {
  Writer writer({data, kOutwardSize});
  writer.u8(static_cast<std::uint8_t>(outward.kind));
  writer.u8(outward.version);
  writer.u16(outward.port);
  memcpy(data + writer.size(), outward.address, sizeof outward.address);
}

bool parse_outward(std::string_view data, Outward& outward) {
  if (data.size() != kOutwardSize) {
    return false;
  }
  Reader reader({reinterpret_cast<const unsigned char*>(data.data()), data.size()});
  outward.kind = static_cast<OutwardKind>(reader.u8());
  outward.version = reader.u8();
  outward.port = reader.u16();
  constexpr std::size_t kFour = 4;
  memcpy(outward.address, data.data() + kOutwardSize - sizeof outward.address,
         sizeof outward.address);
  switch (outward.kind) {
    case OutwardKind::kRedirected:
      return outward.port != 0 &&
             (outward.version == 6 ||
              (outward.version == 4 &&
               is_zero(outward.address + kFour, sizeof outward.address - kFour)));
    case OutwardKind::kProxy:
    case OutwardKind::kDns:
    case OutwardKind::kLookups:
      return outward.version == 0 && outward.port == 0 &&
             is_zero(outward.address, sizeof outward.address);
  }
  return false;
}

}  // namespace carrel::protocol
