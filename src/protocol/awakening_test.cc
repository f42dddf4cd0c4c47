#include "protocol/awakening.h"

#include <gtest/gtest.h>

#include <array>

namespace carrel::protocol {
namespace {

using Bytes = std::array<unsigned char, kAwakeningSize>;

Bytes words(AwakeningKind kind) {
  Awakening words;
  words.kind = kind;
  if (kind == AwakeningKind::kWake) {
    words.wall_ns = 0x1122334455667788;
    words.seed[0] = 7;
    words.seed[kAwakeningSeed - 1] = 9;
  }
  Bytes bytes{};
  write_awakening(words, bytes.data());
  return bytes;
}

TEST(AwakeningTest, WhatIsWrittenIsRead) {
  Awakening read;
  const Bytes wake = words(AwakeningKind::kWake);
  ASSERT_TRUE(parse_awakening(wake.data(), read));
  EXPECT_EQ(read.kind, AwakeningKind::kWake);
  EXPECT_EQ(read.wall_ns, 0x1122334455667788U);
  EXPECT_EQ(read.seed[0], 7);
  EXPECT_EQ(read.seed[kAwakeningSeed - 1], 9);
  const Bytes ask = words(AwakeningKind::kAsk);
  ASSERT_TRUE(parse_awakening(ask.data(), read));
  EXPECT_EQ(read.kind, AwakeningKind::kAsk);
}

TEST(AwakeningTest, AMachineIsNotWokenWithoutRandomBytes) {
  Bytes wake = words(AwakeningKind::kWake);
  wake[16] = 0;
  wake[kAwakeningSize - 1] = 0;
  Awakening read;
  EXPECT_FALSE(parse_awakening(wake.data(), read));
}

TEST(AwakeningTest, OtherBytesAreNoWords) {
  Awakening read;
  for (const std::size_t at : {0U, 3U, 4U, 5U, 7U}) {
    Bytes wake = words(AwakeningKind::kWake);
    wake[at] ^= 0x40;
    EXPECT_FALSE(parse_awakening(wake.data(), read)) << at;
  }
  for (const std::size_t at : {8U, 16U, 79U}) {
    Bytes ask = words(AwakeningKind::kAsk);
    ask[at] = 1;
    EXPECT_FALSE(parse_awakening(ask.data(), read)) << at;
  }
}

TEST(AwakeningTest, BothAnswersHaveOneSize) { EXPECT_EQ(kStillWaiting.size(), kAwoken.size()); }

}  // namespace
}  // namespace carrel::protocol
