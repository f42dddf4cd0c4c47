// An archive of anybody's: whatever is in it, each piece of a file lies in the file, in order, no
// byte is told twice, and reading ends. The first byte says how long the pieces are that it arrives
// in.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "pieces.h"
#include "storage/images/tar_reader.h"

namespace {

using carrel::fuzz::require;

constexpr std::size_t kBlock = 512;

// What looks like a header gets the sum that belongs to it: few would be read otherwise.
void correct_sums(std::string& archive) {
  for (std::size_t at = 0; at + kBlock <= archive.size(); at += kBlock) {
    if (archive.compare(at + 257, 5, "ustar") != 0) {
      continue;
    }
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(archive[at + i]);
    }
    std::snprintf(archive.data() + at + 148, 8, "%06o", sum);
  }
}

void check(const carrel::storage::TarEntry& entry) {
  require(entry.path.find('\0') == std::string::npos);
  require(entry.target.find('\0') == std::string::npos);
  std::uint64_t end = 0;
  for (const auto& piece : entry.pieces) {
    require(piece.offset >= end && piece.size <= entry.size &&
            piece.offset <= entry.size - piece.size);
    end = piece.offset + piece.size;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace storage = carrel::storage;
  if (size == 0) {
    return 0;
  }
  const std::size_t piece = std::size_t{1} + data[0] * std::size_t{7};
  std::string archive(reinterpret_cast<const char*>(data) + 1, size - 1);
  correct_sums(archive);
  std::size_t given = 0;
  storage::TarReader reader([&]() -> carrel::Result<std::string_view> {
    const std::string_view got = std::string_view(archive).substr(given, piece);
    given += got.size();
    return got;
  });
  std::uint64_t told = 0;
  for (;;) {
    const auto entry = reader.next();
    if (!entry.ok() || !entry.value().has_value()) {
      require(entry.ok() || entry.error().message.size() < 400);
      break;
    }
    check(*entry.value());
    std::uint64_t end = 0;
    for (;;) {
      const auto part = reader.data();
      if (!part.ok() || part.value().bytes.empty()) {
        break;
      }
      require(part.value().offset >= end);
      end = part.value().offset + part.value().bytes.size();
      require(end <= entry.value()->size);
      told += part.value().bytes.size();
    }
  }
  require(told <= archive.size());
  return 0;
}
