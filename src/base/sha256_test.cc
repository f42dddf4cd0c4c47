#include "base/sha256.h"

#include <gtest/gtest.h>

namespace carrel {
namespace {

// The examples of FIPS 180-4.
TEST(Sha256, KnownTextsHaveTheirDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesMakeTheSameDigestAsTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += static_cast<char>(i * 7);
    const std::string whole = sha256(text);
    for (std::size_t cut : {std::size_t{1}, std::size_t{55}, std::size_t{64}, std::size_t{119}}) {
      Sha256 hash;
      for (std::size_t at = 0; at < text.size(); at += cut) {
        hash.update(std::string_view(text).substr(at, cut));
      }
      EXPECT_EQ(hash.finish(), whole) << text.size() << " in pieces of " << cut;
    }
  }
}

TEST(Sha256, InstructionsOfTheProcessorDoTheSame) {
  if (!has_sha256_instructions()) {
    GTEST_SKIP() << "the processor has none";
  }
  std::array<unsigned char, 5 * kSha256Block> data{};
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<unsigned char>(i * i + i / 3);
  }
  for (std::size_t blocks = 0; blocks <= 5; ++blocks) {
    Sha256State one = {1, 2, 3, 0xffffffff, 5, 6, 0x80000000, 8};
    Sha256State other = one;
    sha256_portably(one, data.data(), blocks);
    sha256_by_instructions(other, data.data(), blocks);
    EXPECT_EQ(one, other) << blocks;
  }
}

TEST(Sha256, OnlyItsOwnFormIsADigest) {
  EXPECT_TRUE(is_sha256(sha256("x")));
  EXPECT_FALSE(is_sha256(""));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256("../" + std::string(61, 'a')));
}

}  // namespace
}  // namespace carrel
