#include "policy/given.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace carrel::policy {
namespace {

constexpr std::size_t kQuotedLimit = 60;

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 0;  // 0: the bytes are not UTF-8
};

std::uint32_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The code point at the start of a text that is not empty.
CodePoint decode(std::string_view text) {
  const std::uint32_t first = byte_at(text, 0);
  if (first < 0x80) {
    return {first, 1};
  }
  std::size_t length = 0;
  std::uint32_t least = 0;
  std::uint32_t value = 0;
  if ((first & 0xe0U) == 0xc0) {
    length = 2;
    least = 0x80;
    value = first & 0x1fU;
  } else if ((first & 0xf0U) == 0xe0) {
    length = 3;
    least = 0x800;
    value = first & 0x0fU;
  } else if ((first & 0xf8U) == 0xf0) {
    length = 4;
    least = 0x10000;
    value = first & 0x07U;
  }
  if (length == 0 || text.size() < length) {
    return {};
  }
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t next = byte_at(text, i);
    if ((next & 0xc0U) != 0x80) {
      return {};
    }
    value = (value << 6U) | (next & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < least || value > 0x10ffff || surrogate) {
    return {};
  }
  return {value, length};
}

// Characters that are invisible, move the cursor or turn the line around.
bool misleads(std::uint32_t value) {
  return (value >= 0x80 && value <= 0x9f) || value == 0xad || value == 0x61c ||
         (value >= 0x200b && value <= 0x200f) || (value >= 0x2028 && value <= 0x202e) ||
         (value >= 0x2060 && value <= 0x206f) || value == 0xfeff ||
         (value >= 0xe0000 && value <= 0xe0fff);
}

void append_hex(std::string& out, std::uint32_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 8> digits{};
  std::size_t count = 0;
  while (value != 0 || count < 2) {
    digits[count] = kDigits[value & 0xfU];
    value >>= 4U;
    ++count;
  }
  while (count > 0) {
    --count;
    out += digits[count];
  }
}

void append_escaped(std::string& out, std::string_view text, const CodePoint& point) {
  if (point.length == 0) {
    out += "\\x";
    append_hex(out, byte_at(text, 0));
  } else if (point.value == '\n') {
    out += "\\n";
  } else if (point.value == '\t') {
    out += "\\t";
  } else if (point.value == '\\') {
    out += "\\\\";
  } else if (point.value < 0x20 || point.value == 0x7f) {
    out += "\\x";
    append_hex(out, point.value);
  } else if (misleads(point.value)) {
    out += "\\u{";
    append_hex(out, point.value);
    out += '}';
  } else {
    out.append(text.substr(0, point.length));
  }
}

}  // namespace

std::string concat(std::initializer_list<std::string_view> parts) {
  std::size_t size = 0;
  for (const std::string_view part : parts) {
    size += part.size();
  }
  std::string whole;
  whole.reserve(size);
  for (const std::string_view part : parts) {
    whole += part;
  }
  return whole;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) {
      out += "...";
      break;
    }
    const CodePoint point = decode(text);
    append_escaped(out, text, point);
    text.remove_prefix(point.length == 0 ? 1 : point.length);
  }
  return out;
}

std::string quote(std::string_view text) {
  return concat({"'", printable(text, kQuotedLimit), "'"});
}

TextShape shape_of(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = decode(text);
    if (point.length == 0) {
      return TextShape::kInvalidUtf8;
    }
    if (point.value < 0x20 || (point.value >= 0x7f && point.value <= 0x9f)) {
      return TextShape::kControlBytes;
    }
    text.remove_prefix(point.length);
  }
  return TextShape::kPlain;
}

Error bad_value(const Given& given, std::string_view reason, std::string hint) {
  return Error{Code::kInvalid, 0, concat({given.name, " ", quote(given.text), ": ", reason}),
               std::move(hint)};
}

Error not_built(const Given& given, std::string_view what_this_version_does) {
  return Error{
      Code::kUnavailable,
      0,
      concat({given.name, " ", quote(given.text), " is not built yet: ", what_this_version_does}),
      {}};
}

}  // namespace carrel::policy
