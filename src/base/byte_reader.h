#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parsed.h"

namespace carrel {

// Takes numbers in network order and runs of bytes from the front of a message. What is not there
// is zero or empty, and from then on nothing is: ok() tells, once, at the end.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : rest_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u24() { return number(3); }
  std::uint32_t u32() { return number(4); }

  Bytes take(std::size_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const Bytes taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  Bytes take_all() { return take(rest_.size()); }

  [[nodiscard]] std::size_t left() const { return rest_.size(); }
  [[nodiscard]] bool ok() const { return ok_; }
  // Everything was there, and nothing is left over.
  [[nodiscard]] bool done() const { return ok_ && rest_.empty(); }

 private:
  std::uint32_t number(std::size_t size) {
    std::uint32_t value = 0;
    for (const std::uint8_t byte : take(size)) {
      value = (value << 8U) | byte;
    }
    return value;
  }

  Bytes rest_;
  bool ok_ = true;
};

}  // namespace carrel
