#include "verify/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace carrel::verify {
namespace {

Finding finding(const char* name, Group group, Verdict verdict, const char* detail = "") {
  Finding one;
  one.name = name;
  one.group = group;
  one.verdict = verdict;
  one.detail = detail;
  one.duration_ms = 1500;
  return one;
}

Report sample() {
  Report report;
  report.backend = "native";
  report.findings = {finding("A01_X", Group::kFiles, Verdict::kHeld),
                     finding("A02_X", Group::kFiles, Verdict::kHole, "a < b & \"c\"\x1b\xff"),
                     finding("D07_X", Group::kNetwork, Verdict::kGranted, "network: full"),
                     finding("F02_X", Group::kSystemCalls, Verdict::kUnclear, "no answer")};
  return report;
}

TEST(VerifyReport, HeldMeansThatNothingGotThroughAndNothingIsUnclear) {
  Report report = sample();
  EXPECT_FALSE(report.held());
  report.findings.erase(report.findings.begin() + 1);
  EXPECT_FALSE(report.held());
  report.findings.pop_back();
  EXPECT_TRUE(report.held());
  report.findings.erase(report.findings.begin());
  EXPECT_FALSE(report.held()) << "nothing was tried";
}

TEST(VerifyReport, TheSummaryCountsWhatThereIs) {
  EXPECT_EQ(summary(sample()), "1 held, 1 hole, 1 granted, 1 unclear");
}

TEST(VerifyReport, JsonHasEveryFindingWithItsHole) {
  const auto object = nlohmann::json::parse(to_json(sample()));
  EXPECT_EQ(object["ok"], false);
  EXPECT_EQ(object["counts"]["hole"], 1);
  EXPECT_EQ(object["findings"].size(), 4U);
  EXPECT_EQ(object["findings"][1]["group"], "fs");
  EXPECT_EQ(object["findings"][1]["verdict"], "hole");
  EXPECT_EQ(object["findings"][1]["detail"], "a < b & \"c\"\x1b\xef\xbf\xbd");
}

TEST(VerifyReport, JunitHasASuiteForEachGroupAndNothingThatXmlForbids) {
  const std::string text = to_junit(sample());
  EXPECT_NE(text.find("<testsuite name=\"carrel.verify.fs\" tests=\"2\" failures=\"1\" "
                      "errors=\"0\" skipped=\"0\" time=\"3.000\">"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<failure message=\"a &lt; b &amp; &quot;c&quot;?\xef\xbf\xbd\"/>"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<skipped message=\"network: full\"/>"), std::string::npos) << text;
  EXPECT_NE(text.find("<error message=\"no answer\"/>"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("carrel.verify.proc"), std::string::npos) << "a group without findings";
}

}  // namespace
}  // namespace carrel::verify
