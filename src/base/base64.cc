#include "base/base64.h"

namespace carrel {

std::string base64(std::string_view data) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < data.size(); i += 3) {
    unsigned value = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      value = value << 8 | (i + j < data.size() ? static_cast<unsigned char>(data[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= data.size() ? kDigits[value >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace carrel
