#ifdef __x86_64__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define CARREL_BYTES_NAME(name) ours_##name
extern "C" {
#include "base/musl_bytes.c"
}
#pragma GCC diagnostic pop

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace carrel {
namespace {

constexpr std::size_t kLongest = 400;
constexpr std::size_t kAround = 40;

std::vector<unsigned char> some_bytes(std::size_t size) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(size);
  for (unsigned char& byte : bytes) {
    byte = static_cast<unsigned char>(random());
  }
  return bytes;
}

TEST(MuslBytes, CopiesAreWholeAndNothingElseIsWritten) {
  const std::vector<unsigned char> from = some_bytes(kLongest + kAround);
  for (std::size_t size = 0; size <= kLongest; ++size) {
    for (std::size_t skew = 0; skew < 17; skew += 3) {
      std::vector<unsigned char> to(kLongest + 2 * kAround, 0xee);
      std::vector<unsigned char> expected = to;
      std::copy_n(from.data() + skew, size, expected.data() + kAround - skew);
      ASSERT_EQ(ours_memcpy(to.data() + kAround - skew, from.data() + skew, size),
                to.data() + kAround - skew);
      ASSERT_EQ(to, expected) << size << " at " << skew;
    }
  }
}

TEST(MuslBytes, MovesMayOverlapEitherWay) {
  const std::vector<unsigned char> bytes = some_bytes(2 * kLongest);
  for (std::size_t size = 0; size <= kLongest; ++size) {
    for (const std::size_t apart : {1U, 7U, 15U, 16U, 17U, 33U, 63U, 64U, 65U, 127U, 129U, 390U}) {
      std::vector<unsigned char> up = bytes;
      std::vector<unsigned char> down = bytes;
      std::vector<unsigned char> expected_up = bytes;
      std::vector<unsigned char> expected_down = bytes;
      std::copy_n(bytes.data(), size, expected_up.data() + apart);
      std::copy_n(bytes.data() + apart, size, expected_down.data());
      ours_memmove(up.data() + apart, up.data(), size);
      ours_memmove(down.data(), down.data() + apart, size);
      ASSERT_EQ(up, expected_up) << size << " by " << apart;
      ASSERT_EQ(down, expected_down) << size << " by " << apart;
    }
  }
}

TEST(MuslBytes, TheFirstDifferenceDecides) {
  const std::vector<unsigned char> one = some_bytes(kLongest);
  for (std::size_t size = 0; size <= kLongest; ++size) {
    std::vector<unsigned char> other(one.begin(), one.begin() + static_cast<long>(size));
    ASSERT_EQ(ours_memcmp(one.data(), other.data(), size), 0) << size;
    for (std::size_t at = 0; at < size; at += 1 + size / 40) {
      other[at] = static_cast<unsigned char>(one[at] + 1);
      if (at + 1 < size) {
        other[at + 1] = static_cast<unsigned char>(~one[at + 1]);
      }
      const int wanted = one[at] < other[at] ? -1 : 1;
      ASSERT_GT(ours_memcmp(one.data(), other.data(), size) * wanted, 0) << size << " at " << at;
      ASSERT_LT(ours_memcmp(other.data(), one.data(), size) * wanted, 0) << size << " at " << at;
      std::copy_n(one.data(), size, other.data());
    }
  }
}

}  // namespace
}  // namespace carrel
#endif
