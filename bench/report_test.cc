#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace carrel::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Row row(const std::string& name, double median, const std::string& peer = {},
        std::optional<Budget> budget = std::nullopt) {
  return Row{"start", name, "ms", Summary{median, median, median, 5}, peer, budget};
}

constexpr Budget kAtMost{Budget::Better::kLess, 0.8, 0.5};
constexpr Budget kAtLeast{Budget::Better::kMore, 1.5, 8};

Verdict verdict_of(double ours, double theirs, const Budget& budget) {
  Report report;
  report.add(row("theirs", theirs));
  report.add(row("ours", ours, "theirs", budget));
  return report.verdict(report.rows()[1]);
}

TEST(Report, ARatioIsTheMedianDividedByThePeers) {
  Report report;
  report.add(row("theirs", 4));
  report.add(row("ours", 1, "theirs"));
  EXPECT_DOUBLE_EQ(report.ratio(report.rows()[1]).value(), 0.25);
  EXPECT_FALSE(report.ratio(report.rows()[0]).has_value());
}

TEST(Report, APeerThatWasNotMeasuredGivesNoRatioAndNoVerdict) {
  Report report;
  report.add(row("ours", 1, "theirs", kAtMost));
  EXPECT_FALSE(report.ratio(report.rows()[0]).has_value());
  EXPECT_EQ(report.verdict(report.rows()[0]), Verdict::kNone);
}

TEST(Report, APeerIsLookedForInTheSameSectionOnly) {
  Report report;
  report.add(Row{"elsewhere", "theirs", "ms", Summary{4, 4, 4, 5}, {}, std::nullopt});
  report.add(row("ours", 1, "theirs"));
  EXPECT_FALSE(report.ratio(report.rows()[1]).has_value());
}

TEST(Report, AnUpperLimitIsReachedFromBelow) {
  EXPECT_EQ(verdict_of(0.9, 1, kAtMost), Verdict::kMissed);
  EXPECT_EQ(verdict_of(0.8, 1, kAtMost), Verdict::kMust);
  EXPECT_EQ(verdict_of(0.5, 1, kAtMost), Verdict::kAim);
}

TEST(Report, ALowerLimitIsReachedFromAbove) {
  EXPECT_EQ(verdict_of(1.4, 1, kAtLeast), Verdict::kMissed);
  EXPECT_EQ(verdict_of(1.5, 1, kAtLeast), Verdict::kMust);
  EXPECT_EQ(verdict_of(9, 1, kAtLeast), Verdict::kAim);
}

TEST(Report, TheTableHasTheRatioTheBudgetAndWhatWasLeftOut) {
  Report report;
  report.add(row("theirs", 4));
  report.add(row("ours", 1, "theirs", kAtMost));
  report.leave_out("docker", "not installed");
  report.warn("busy");
  const std::string text = report.to_text();
  EXPECT_THAT(text, HasSubstr("0.250x of theirs"));
  EXPECT_THAT(text, HasSubstr("<= 0.800"));
  EXPECT_THAT(text, HasSubstr("docker: not installed"));
  EXPECT_THAT(text, HasSubstr("WARNING: busy"));
  EXPECT_THAT(text, Not(HasSubstr("MISSED")));
}

TEST(Report, TheJsonSaysWhetherEachLimitWasReached) {
  Report report;
  report.add(row("theirs", 1));
  report.add(row("ours", 0.7, "theirs", kAtMost));
  const auto rows = nlohmann::json::parse(report.to_json()).at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_FALSE(rows[0].contains("ratio"));
  EXPECT_DOUBLE_EQ(rows[1].at("ratio").get<double>(), 0.7);
  EXPECT_TRUE(rows[1].at("must_reached").get<bool>());
  EXPECT_FALSE(rows[1].at("aim_reached").get<bool>());
}

TEST(Report, NumbersHaveThreeDigitsAndNoExponent) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.0712), "0.0712");
  EXPECT_EQ(number_text(0.25), "0.250");
  EXPECT_EQ(number_text(6.234), "6.23");
  EXPECT_EQ(number_text(350.2), "350");
  EXPECT_EQ(number_text(1234567), "1234567");
}

}  // namespace
}  // namespace carrel::bench
