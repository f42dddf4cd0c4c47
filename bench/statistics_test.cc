#include "bench/statistics.h"

#include <gtest/gtest.h>

namespace carrel::bench {
namespace {

TEST(Statistics, NoSamplesAreZeroAndNotACrash) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.median, 0);
}

TEST(Statistics, OneSampleIsItsOwnSpread) {
  const Summary summary = summarize({7});
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.low, 7);
  EXPECT_EQ(summary.high, 7);
}

TEST(Statistics, TheMedianOfAnEvenNumberLiesBetweenTheTwoInTheMiddle) {
  EXPECT_DOUBLE_EQ(summarize({4, 1, 3, 2}).median, 2.5);
}

TEST(Statistics, OneWildSampleMovesNeitherMedianNorSpread) {
  std::vector<double> samples;
  for (int i = 0; i <= 20; ++i) {
    samples.push_back(i);
  }
  const Summary calm = summarize(samples);
  samples.back() = 1e9;
  const Summary wild = summarize(samples);
  EXPECT_DOUBLE_EQ(calm.median, wild.median);
  EXPECT_DOUBLE_EQ(calm.high, wild.high);
}

TEST(Statistics, TheSpreadLeavesATenthOnEachSide) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) {
    samples.push_back(i);
  }
  const Summary summary = summarize(samples);
  EXPECT_DOUBLE_EQ(summary.low, 10);
  EXPECT_DOUBLE_EQ(summary.high, 90);
  EXPECT_EQ(summary.count, 101U);
}

TEST(Statistics, AQuantileOutsideTheRangeIsTheEnd) {
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3}, -1), 1);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3}, 2), 3);
}

}  // namespace
}  // namespace carrel::bench
