#include "guest/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace carrel::guest {
namespace {

constexpr std::size_t kCapacity = Ring::kCapacity;

class RingTest : public testing::Test {
 protected:
  void TearDown() override { ring_.reset(); }

  void add(std::string_view data) {
    while (!data.empty()) {
      std::size_t size = 0;
      char* place = ring_.place(data.size(), size);
      ASSERT_NE(place, nullptr);
      ASSERT_GT(size, 0U);
      ASSERT_LE(size, data.size());
      std::memcpy(place, data.data(), size);
      ring_.added(size);
      data.remove_prefix(size);
    }
  }
  // All from `offset` on, as a reader would collect it.
  [[nodiscard]] std::string all_from(std::uint64_t offset, std::size_t limit = 10'000) const {
    std::string text;
    while (offset < ring_.end()) {
      const std::string_view piece = ring_.from(offset, limit);
      EXPECT_GT(piece.size(), 0U);
      EXPECT_LE(piece.size(), limit);
      text += piece;
      offset += piece.size();
    }
    return text;
  }

  Ring ring_;
};

std::string numbered(std::size_t size) {
  std::string text;
  while (text.size() < size) {
    text += std::to_string(text.size()) + ' ';
  }
  text.resize(size);
  return text;
}

TEST_F(RingTest, BeginsEmpty) {
  EXPECT_EQ(ring_.start(), 0U);
  EXPECT_EQ(ring_.end(), 0U);
  EXPECT_EQ(ring_.room(0), kCapacity);
  EXPECT_TRUE(ring_.from(0, 100).empty());
}

TEST_F(RingTest, KeepsEverythingUntilItIsFull) {
  const std::string text = numbered(kCapacity);
  add(text);
  EXPECT_EQ(ring_.start(), 0U);
  EXPECT_EQ(ring_.end(), kCapacity);
  EXPECT_TRUE(all_from(0) == text);
  EXPECT_EQ(ring_.room(0), 0U);
}

TEST_F(RingTest, KeepsTheNewestOnceItIsFull) {
  const std::string text = numbered(3 * kCapacity + 777);
  for (std::size_t at = 0; at < text.size(); at += 9'973) {
    add(std::string_view(text).substr(at, 9'973));
  }
  EXPECT_EQ(ring_.end(), text.size());
  EXPECT_EQ(ring_.start(), text.size() - kCapacity);
  EXPECT_TRUE(all_from(ring_.start()) == text.substr(text.size() - kCapacity));
  EXPECT_TRUE(all_from(ring_.end() - 5) == text.substr(text.size() - 5));
}

TEST_F(RingTest, PieceEndsWhereTheMemoryDoes) {
  add(numbered(kCapacity - 10));
  std::size_t size = 0;
  ring_.place(100, size);
  EXPECT_EQ(size, 10U);
  add("0123456789abc");
  EXPECT_EQ(ring_.from(kCapacity - 10, 100), "0123456789");
  EXPECT_EQ(ring_.from(kCapacity, 100), "abc");
}

TEST_F(RingTest, RoomIsWhatCanComeBeforeUnreadBytesAreLost) {
  add(numbered(100));
  EXPECT_EQ(ring_.room(0), kCapacity - 100);
  EXPECT_EQ(ring_.room(100), kCapacity);
  const std::string more = numbered(ring_.room(60));
  add(more);
  EXPECT_EQ(ring_.start(), 60U);
  EXPECT_TRUE(all_from(60).substr(40) == more);
}

TEST_F(RingTest, LimitCutsAPiece) {
  add("0123456789");
  EXPECT_EQ(ring_.from(2, 3), "234");
  EXPECT_TRUE(ring_.from(2, 0).empty());
}

TEST_F(RingTest, FewFirstBytesAreReadLikeAnyOthers) {
  ASSERT_TRUE(ring_.add("few bytes"));
  EXPECT_EQ(ring_.start(), 0U);
  EXPECT_EQ(ring_.end(), 9U);
  EXPECT_EQ(ring_.from(0, 100), "few bytes");
  EXPECT_EQ(ring_.from(4, 3), "byt");
  EXPECT_EQ(ring_.room(0), kCapacity - 9);
}

TEST_F(RingTest, FewFirstBytesStayWhenMoreCome) {
  const std::string first = numbered(Ring::kFew);
  const std::string more = numbered(kCapacity);
  ASSERT_TRUE(ring_.add(first));
  add(more);
  EXPECT_EQ(ring_.end(), first.size() + more.size());
  EXPECT_TRUE(all_from(ring_.start()) == more);
  ring_.reset();
  ASSERT_TRUE(ring_.add(first));
  add("x");
  EXPECT_TRUE(all_from(0) == first + "x");
}

TEST_F(RingTest, FewBytesMayComeInPieces) {
  const std::string all = numbered(Ring::kFew + 100);
  for (std::size_t step : {1UL, 7UL, 128UL, 500UL, Ring::kFew}) {
    for (std::size_t at = 0; at < all.size(); at += step) {
      const std::string_view piece = std::string_view(all).substr(at, step);
      if (ring_.is_short()) {
        ASSERT_TRUE(ring_.add(piece));
      } else {
        add(piece);
      }
      ASSERT_EQ(all_from(0), all.substr(0, at + step));
    }
    EXPECT_FALSE(ring_.is_short());
    ring_.reset();
    EXPECT_TRUE(ring_.is_short());
  }
}

TEST_F(RingTest, ResetForgetsAndCanBeUsedAgain) {
  add(numbered(kCapacity + 5));
  ring_.reset();
  EXPECT_EQ(ring_.end(), 0U);
  EXPECT_EQ(ring_.start(), 0U);
  add("again");
  EXPECT_EQ(ring_.from(0, 100), "again");
}

}  // namespace
}  // namespace carrel::guest
