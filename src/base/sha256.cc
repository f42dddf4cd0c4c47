#include "base/sha256.h"

#include <algorithm>
#include <cstring>

namespace carrel {

namespace {

void add_blocks(Sha256State& state, const unsigned char* data, std::size_t blocks) {
  static const bool quickly = has_sha256_instructions();
  (quickly ? sha256_by_instructions : sha256_portably)(state, data, blocks);
}

}  // namespace

void Sha256::update(std::string_view data) {
  total_ += data.size();
  while (!data.empty()) {
    if (pending_size_ == 0 && data.size() >= kSha256Block) {
      const std::size_t whole = data.size() / kSha256Block;
      add_blocks(state_, reinterpret_cast<const unsigned char*>(data.data()), whole);
      data.remove_prefix(whole * kSha256Block);
      continue;
    }
    const std::size_t taken = std::min(pending_.size() - pending_size_, data.size());
    std::memcpy(pending_.data() + pending_size_, data.data(), taken);
    pending_size_ += taken;
    data.remove_prefix(taken);
    if (pending_size_ == pending_.size()) {
      add_blocks(state_, pending_.data(), 1);
      pending_size_ = 0;
    }
  }
}

std::array<unsigned char, 32> Sha256::digest() {
  const std::uint64_t bits = total_ * 8;
  std::string padding(1, '\x80');
  padding.append((119 - pending_size_) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) {
    padding += static_cast<char>(bits >> shift & 0xff);
  }
  update(padding);
  std::array<unsigned char, 32> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(state_[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
  }
  return bytes;
}

std::string Sha256::finish() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest()) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xf];
  }
  return text;
}

std::string sha256(std::string_view data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace carrel
