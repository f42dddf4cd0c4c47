#include "server/alert_rules.h"

#include <gtest/gtest.h>

namespace carrel::server {
namespace {

const Incident kDenied{"box", Suspicion::kNetwork, "evil.test"};

// R284
TEST(AlertRules, FiveWithinTenSecondsAreOneAlert) {
  AlertRules rules;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(rules.note(kDenied, 1000 * i).has_value());
  }
  const auto alert = rules.note(kDenied, 9999);
  ASSERT_TRUE(alert.has_value());
  EXPECT_EQ(alert->count, 5U);
  EXPECT_EQ(alert->window_ms, 10'000);
  EXPECT_EQ(alert->last.detail, "evil.test");
}

TEST(AlertRules, FiveInALongerTimeAreNone) {
  AlertRules rules;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(rules.note(kDenied, 2501 * i).has_value()) << i;
  }
}

TEST(AlertRules, SandboxesAndKindsAreCountedApart) {
  AlertRules rules;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(rules.note(kDenied, i).has_value());
    EXPECT_FALSE(rules.note({"other", Suspicion::kNetwork, ""}, i).has_value());
    EXPECT_FALSE(rules.note({"box", Suspicion::kPath, ""}, i).has_value());
  }
}

// K13
TEST(AlertRules, FloodIsOneAlertForEachWindowWithTheWholeCount) {
  AlertRules rules;
  std::uint64_t alerts = 0;
  std::uint64_t counted = 0;
  for (int ms = 0; ms < 30'000; ms += 10) {
    if (const auto alert = rules.note(kDenied, ms); alert.has_value()) {
      ++alerts;
      counted += alert->count;
    }
  }
  EXPECT_EQ(alerts, 3U);
  EXPECT_GE(counted, 2000U);
}

// K13
TEST(AlertRules, EndOfAFloodIsToldWithWhatWasLeft) {
  AlertRules rules;
  std::uint64_t counted = 0;
  for (int i = 0; i < 300; ++i) {
    const auto alert = rules.note(kDenied, i);
    counted += alert.has_value() ? alert->count : 0;
  }
  EXPECT_EQ(counted, 5U);
  EXPECT_TRUE(rules.tidy(9000).empty());
  const std::vector<Alert> rest = rules.tidy(10'004);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].count, 295U);
  EXPECT_EQ(rest[0].last.detail, "evil.test");
  EXPECT_TRUE(rules.tidy(20'004).empty());
  EXPECT_EQ(rules.known(), 0U);
}

TEST(AlertRules, FewAfterAnAlertAreNoAlert) {
  AlertRules rules;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(rules.note(kDenied, i).has_value(), i == 4);
  }
  EXPECT_TRUE(rules.tidy(10'004).empty());
  // Nor are they counted with those of another time.
  for (int i = 0; i < 5; ++i) {
    const auto alert = rules.note(kDenied, 30'000 + i);
    ASSERT_EQ(alert.has_value(), i == 4);
    EXPECT_EQ(alert.has_value() ? alert->count : 5, 5U);
  }
}

TEST(AlertRules, CommandsMayFailMoreOften) {
  AlertRules rules;
  const Incident failed{"box", Suspicion::kFailure, ""};
  for (int i = 0; i < 19; ++i) {
    EXPECT_FALSE(rules.note(failed, i).has_value());
  }
  EXPECT_TRUE(rules.note(failed, 20).has_value());
}

TEST(AlertRules, WhatIsOverIsForgotten) {
  AlertRules rules;
  for (int i = 0; i < 1000; ++i) {
    (void)rules.note({std::to_string(i), Suspicion::kLimit, ""}, 0);
  }
  EXPECT_TRUE(rules.tidy(5000).empty());
  EXPECT_EQ(rules.known(), 1000U);
  EXPECT_TRUE(rules.tidy(10'001).empty());
  EXPECT_EQ(rules.known(), 0U);
}

TEST(Incidents, AreReadFromTheLines) {
  EXPECT_EQ(incidents_of_event(R"({"event":"security","sandbox":"x","path":"../a"})").size(), 1U);
  EXPECT_EQ(incidents_of_event(R"({"event":"limit","sandbox":"x","limit":"pids"})").size(), 1U);
  EXPECT_EQ(incidents_of_event(R"({"event":"result","sandbox":"x","exit_code":1})").size(), 1U);
  EXPECT_EQ(incidents_of_event(R"({"event":"result","sandbox":"x","exit_code":159})").size(), 2U);
  EXPECT_TRUE(incidents_of_event(R"({"event":"result","sandbox":"x","exit_code":0})").empty());
  EXPECT_TRUE(incidents_of_event(R"({"event":"alert","sandbox":"x"})").empty());
  for (const char* line : {"", "[", "[]", "{}", R"({"event":3})", R"({"event":"result"})"}) {
    EXPECT_TRUE(incidents_of_event(line).empty()) << line;
  }
  const auto denied =
      incident_of_decision(R"({"sandbox":"x","event":"connect","host":"h","verdict":"denied"})");
  ASSERT_TRUE(denied.has_value());
  EXPECT_EQ(denied->detail, "h");
  EXPECT_FALSE(incident_of_decision(R"({"sandbox":"x","verdict":"allowed"})").has_value());
  EXPECT_FALSE(incident_of_decision(R"({"host":"\"denied\"","verdict":"allowed"})").has_value());
}

}  // namespace
}  // namespace carrel::server
