#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/sha256_blocks.h"

namespace carrel {

// SHA-256 (FIPS 180-4), fed piece by piece.
class Sha256 {
 public:
  void update(std::string_view data);
  // The digest, as bytes or as 64 hex digits. The object must not be used after this.
  [[nodiscard]] std::array<unsigned char, 32> digest();
  [[nodiscard]] std::string finish();

 private:
  Sha256State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kSha256Block> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;
};

// The digest of one text.
std::string sha256(std::string_view data);

// Whether the text is 64 lower-case hex digits, as finish() gives them.
bool is_sha256(std::string_view text);

}  // namespace carrel
