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
}

TEST(Eagerness, EndsOfBurstsDoNotStopIt) {
  Eagerness eagerness;
  eagerness.note(300, Way::kSleep);
  for (int burst = 0; burst < 100; ++burst) {
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(eagerness.begin(), Way::kAsk) << burst << ", " << i;
      eagerness.note(50, Way::kAsk);
    }
    EXPECT_EQ(eagerness.begin(), Way::kAsk) << burst;
    eagerness.note(5000, Way::kAsk);
  }
}

TEST(Eagerness, EndsSoonWhenNoMoreBurstsCome) {
  Eagerness eagerness;
  eagerness.note(300, Way::kSleep);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(eagerness.begin(), Way::kAsk);
    eagerness.note(50, Way::kAsk);
  }
  int tries = 0;
  for (int i = 0; i < 1000; ++i) {
    const Way way = eagerness.begin();
    tries += way == Way::kAsk ? 1 : 0;
    eagerness.note(5000, way);
  }
  EXPECT_EQ(tries, 3);
}

TEST(Eagerness, PairsDoNotKeepItUp) {
  Eagerness eagerness;
  int vain = 0;
  for (int pair = 0; pair < 1000; ++pair) {
    for (const std::uint64_t took : {50U, 5000U}) {
      const Way way = eagerness.begin();
      vain += way == Way::kAsk && took > Eagerness::kLongest ? 1 : 0;
      eagerness.note(took, way);
    }
  }
  EXPECT_LT(vain, 500);
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

TEST(Eagerness, AnswerHasATimeOfItsOwn) {
  constexpr std::uint64_t kBetween = (Eagerness::kLongestForAnswer + Eagerness::kLongest) / 2;
  Eagerness frames;
  Eagerness answers;
  frames.note(300, Way::kSleep);
  answers.note(300, Way::kSleep);
  int asked = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(answers.begin(), Way::kAsk);
    answers.note(kBetween, Way::kAsk, Eagerness::kLongestForAnswer);
    const Way way = frames.begin();
    asked += way == Way::kAsk ? 1 : 0;
    frames.note(kBetween, way);
  }
  EXPECT_GT(asked, 0);
  EXPECT_LT(asked, 10);
}

}  // namespace
}  // namespace carrel::protocol
