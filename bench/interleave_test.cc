#include "bench/interleave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::bench {
namespace {

Contender counting(const std::string& name, std::string& order) {
  return Contender{name, [name, &order]() -> Result<double> {
                     order += name;
                     return static_cast<double>(order.size());
                   }};
}

TEST(Interleave, EveryRoundBeginsWithTheNextContender) {
  Report report;
  std::string order;
  interleave(report, "s", "ms", {counting("a", order), counting("b", order), counting("c", order)},
             {0, 3});
  EXPECT_EQ(order, "abcbcacab");
}

TEST(Interleave, WarmUpIsRunAndNotCounted) {
  Report report;
  std::string order;
  interleave(report, "s", "ms", {counting("a", order)}, {2, 3});
  EXPECT_EQ(order.size(), 5U);
  ASSERT_EQ(report.rows().size(), 1U);
  EXPECT_EQ(report.rows()[0].summary.count, 3U);
  EXPECT_DOUBLE_EQ(report.rows()[0].summary.median, 4);
}

TEST(Interleave, ASlowContenderTakesPartInFewerRounds) {
  Report report;
  std::string order;
  Contender slow = counting("s", order);
  slow.every = 5;
  interleave(report, "s", "ms", {counting("a", order), slow}, {0, 10});
  ASSERT_EQ(report.rows().size(), 2U);
  EXPECT_EQ(report.rows()[0].summary.count, 10U);
  EXPECT_EQ(report.rows()[1].summary.count, 2U);
}

Result<double> broken() { return Error{Code::kSystem, 0, "no such thing", {}}; }

TEST(Interleave, AContenderThatAlwaysFailsIsLeftOutWithItsReason) {
  Report report;
  std::string order;
  int tries = 0;
  Contender bad{"bad", [&] {
                  ++tries;
                  return broken();
                }};
  interleave(report, "s", "ms", {bad, counting("a", order)}, {1, 40});
  EXPECT_EQ(tries, 6);
  ASSERT_EQ(report.rows().size(), 1U);
  EXPECT_EQ(report.rows()[0].name, "a");
  EXPECT_THAT(report.to_text(), testing::HasSubstr("s, bad: no such thing"));
}

TEST(Interleave, AContenderThatFailsInAShortRunHasNoRow) {
  Report report;
  interleave(report, "s", "ms", {Contender{"bad", broken}}, {0, 2});
  EXPECT_TRUE(report.rows().empty());
  EXPECT_THAT(report.to_text(), testing::HasSubstr("s, bad: no such thing"));
}

TEST(Interleave, AFailureNowAndThenIsAWarningAndNotASample) {
  Report report;
  int tries = 0;
  Contender flaky{
      "flaky", [&]() -> Result<double> { return ++tries == 3 ? broken() : Result<double>(1.0); }};
  interleave(report, "s", "ms", {flaky}, {0, 10});
  ASSERT_EQ(report.rows().size(), 1U);
  EXPECT_EQ(report.rows()[0].summary.count, 9U);
  EXPECT_THAT(report.to_text(), testing::HasSubstr("WARNING: s, flaky: 1 failed"));
}

}  // namespace
}  // namespace carrel::bench
