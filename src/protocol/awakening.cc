#include "protocol/awakening.h"

#include "protocol/wire.h"

namespace carrel::protocol {

namespace {

constexpr std::uint32_t kMagic = 0x4b415741;  // "AWAK"

}  // namespace

void write_awakening(const Awakening& words, unsigned char* data) {
  Writer writer({data, kAwakeningSize});
  writer.u32(kMagic);
  writer.u32(static_cast<std::uint32_t>(words.kind));
  writer.u64(words.wall_ns);
  for (const unsigned char byte : words.seed) {
    writer.u8(byte);
  }
}

bool parse_awakening(const unsigned char* data, Awakening& words) {
  Reader reader({data, kAwakeningSize});
  const std::uint32_t magic = reader.u32();
  const std::uint32_t kind = reader.u32();
  words.kind = static_cast<AwakeningKind>(kind);
  words.wall_ns = reader.u64();
  unsigned any = 0;
  for (unsigned char& byte : words.seed) {
    byte = reader.u8();
    any |= byte;
  }
  if (magic != kMagic || !reader.finished()) {
    return false;
  }
  switch (kind) {
    case static_cast<std::uint32_t>(AwakeningKind::kAsk):
      return words.wall_ns == 0 && any == 0;
    case static_cast<std::uint32_t>(AwakeningKind::kWake):
      // CRITICAL: without random bytes two machines of one snapshot would be alike.
      return any != 0;
    default:
      return false;
  }
}

}  // namespace carrel::protocol
