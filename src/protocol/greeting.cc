#include "protocol/greeting.h"

#include <string.h>

#include "protocol/wire.h"

namespace carrel::protocol {

namespace {

constexpr char kWord[] = "carrel 1";
constexpr std::size_t kWordSize = sizeof kWord - 1;
constexpr std::uint32_t kNewestLandlock = 1000;

// Of a number in five groups.
bool is_boot_id(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (dash ? c != '-' : !digit) {
      return false;
    }
  }
  return true;
}

}  // namespace

void write_greeting(const Greeting& greeting, unsigned char* data) {
  memcpy(data, kWord, kWordSize);
  memcpy(data + kWordSize, greeting.boot_id, kBootIdSize);
  Writer writer({data + kWordSize + kBootIdSize, 4});
  writer.u32(greeting.landlock);
}

bool parse_greeting(const unsigned char* data, Greeting& greeting) {
  static_assert(kWordSize + kBootIdSize + 4 == kGreetingSize);
  memcpy(greeting.boot_id, data + kWordSize, kBootIdSize);
  Reader reader({data + kWordSize + kBootIdSize, 4});
  greeting.landlock = reader.u32();
  return memcmp(data, kWord, kWordSize) == 0 && is_boot_id(greeting.boot()) &&
         greeting.landlock <= kNewestLandlock;
}

}  // namespace carrel::protocol
