#pragma once

#include <cstdint>
#include <string_view>

namespace carrel::server {

// What the header 'Range' of a request means for a body of a known size (RFC 9110, section 14).
struct ByteRange {
  enum class Kind {
    kWhole,          // no range, or one that a server may leave unread: several, other units
    kPart,           // from `from`, `count` bytes, of which there is at least one
    kUnsatisfiable,  // behind the end
  };
  Kind kind = Kind::kWhole;
  std::uint64_t from = 0;
  std::uint64_t count = 0;
};

ByteRange parse_byte_range(std::string_view header, std::uint64_t size);

}  // namespace carrel::server
