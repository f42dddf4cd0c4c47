#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

namespace carrel::sandbox {

// The header block of a tar, as POSIX lays it out.
struct TarBlock {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char modified[12];
  char checksum[8];
  char type;
  char target[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char major[8];
  char minor[8];
  char prefix[155];
  char rest[12];

  static constexpr std::size_t kSize = 512;

  [[nodiscard]] unsigned sum() const {
    unsigned total = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(this);
    for (std::size_t i = 0; i < kSize; ++i) {
      const bool inside = i >= offsetof(TarBlock, checksum) && i < offsetof(TarBlock, type);
      total += inside ? ' ' : bytes[i];
    }
    return total;
  }
};
static_assert(sizeof(TarBlock) == TarBlock::kSize);

// A field that ends with a NUL, or with the field.
template <std::size_t kField>
std::string_view tar_text(const char (&field)[kField]) {
  return {field, strnlen(field, kField)};
}

// An octal number between blanks, or a binary one after a byte of 0x80. Empty: none, or too large.
template <std::size_t kField>
std::optional<std::uint64_t> tar_number(const char (&field)[kField]) {
  std::uint64_t value = 0;
  if (static_cast<unsigned char>(field[0]) == 0x80) {
    for (std::size_t i = 1; i < kField; ++i) {
      if (value >> 55 != 0) {
        return std::nullopt;
      }
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  bool ended = false;
  for (std::size_t i = 0; i < kField && field[i] != '\0'; ++i) {
    if (field[i] == ' ') {
      ended = ended || value != 0;
      continue;
    }
    if (field[i] < '0' || field[i] > '7' || ended || value >> 60 != 0) {
      return std::nullopt;
    }
    value = value << 3 | static_cast<unsigned>(field[i] - '0');
  }
  return value;
}

template <std::size_t kField>
void put_octal(char (&field)[kField], std::uint64_t value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*llo", static_cast<int>(kField - 1),
                static_cast<unsigned long long>(value));
  std::memcpy(field, text.data(), kField - 1);
}

}  // namespace carrel::sandbox
