#include "protocol/eagerness.h"

#include <gtest/gtest.h>

namespace carrel::protocol {
namespace {

using Way = Eagerness::Way;

TEST(Eagerness, BeginsWithSleep) {
  Eagerness eagerness;
  EXPECT_EQ(eagerness.begin(), Way::kSleep);
  eagerness.note(5000, Way::kSleep);
  EXPECT_EQ(eagerness.begin(), Way::kSleep);
}

TEST(Eagerness, FollowsFramesThatCameSoon) {
  Eagerness eagerness;
  eagerness.note(300, Way::kSleep);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(eagerness.begin(), Way::kAsk);
    eagerness.note(50, Way::kAsk);
  }
  EXPECT_EQ(eagerness.begin(), Way::kAsk);
  eagerness.note(5000, Way::kAsk);
  EXPECT_EQ(eagerness.begin(), Way::kSleep);
}

TEST(Eagerness, IsTriedLessAndLessWhereItIsInVain) {
  Eagerness eagerness;
  int tries = 0;
  for (int i = 0; i < 10'000; ++i) {
    // Asleep it is quick; asking takes the processor that the other end would need.
    const Way way = eagerness.begin();
    tries += way == Way::kAsk ? 1 : 0;
    eagerness.note(way == Way::kAsk ? 300 : 60, way);
  }
  EXPECT_GT(tries, 3);
  EXPECT_LT(tries, 25);
}

TEST(Eagerness, OneSuccessIsEnoughToGoOn) {
  Eagerness eagerness;
  for (int i = 0; i < 5'000; ++i) {
    const Way way = eagerness.begin();
    eagerness.note(way == Way::kAsk ? 300 : 60, way);
  }
  while (eagerness.begin() == Way::kSleep) {
    eagerness.note(60, Way::kSleep);
  }
  eagerness.note(20, Way::kAsk);
  EXPECT_EQ(eagerness.begin(), Way::kAsk);
}

}  // namespace
}  // namespace carrel::protocol
