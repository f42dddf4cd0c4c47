#include "verify/judge.h"

#include <gtest/gtest.h>

#include <string>

namespace carrel::verify {
namespace {

constexpr Attack kProbe{"A05_SystemFilesCannotBeChanged", Group::kFiles, Manner::kProbe,
                        "A05_SystemFilesCannotBeChanged", "change files"};
constexpr Attack kOutside{"D07_NothingOutsideIsReached", Group::kNetwork, Manner::kOutside,
                          "D07_NothingOutsideIsReached", "reach the world"};

sandbox::ExecResult said(const Attack& attack, const std::string& open, const std::string& held,
                         const std::string& absent = "") {
  sandbox::ExecResult result;
  result.standard_output = "{\"probe\":\"" + std::string(attack.probe) + "\",\"verdict\":\"x\"," +
                           "\"open\":[" + open + "],\"n/a\":[" + absent + "],\"held\":[" + held +
                           "]}\n";
  return result;
}

TEST(Judge, OpenAttemptsAreAHoleThatIsNamed) {
  const Judgement found =
      judge(kProbe, {}, said(kProbe, "\"write /etc/passwd: it worked\"", "\"x\""));
  EXPECT_EQ(found.verdict, Verdict::kHole);
  EXPECT_EQ(found.detail, "write /etc/passwd: it worked");
}

TEST(Judge, ManyHolesAreCountedAndAFewNamed) {
  const Judgement found =
      judge(kProbe, {},
            said(kProbe, R"("remount a","remount b","remount c","remount d","remount e")", ""));
  EXPECT_EQ(found.detail, "remount a; remount b; remount c; and 2 more");
}

TEST(Judge, HeldNeedsAnAttemptThatWasMade) {
  EXPECT_EQ(judge(kProbe, {}, said(kProbe, "", "\"x\"")).verdict, Verdict::kHeld);
  const Judgement none = judge(kProbe, {}, said(kProbe, "", "", "\"there is none\""));
  EXPECT_EQ(none.verdict, Verdict::kNotApplicable);
  EXPECT_EQ(none.detail, "there is none");
}

TEST(Judge, OutputThatIsNotOneLineOfTheProbeIsUnclear) {
  for (const std::string& text :
       {std::string(), std::string("held\n"), std::string("{}\n"),
        said(kOutside, "", "\"x\"").standard_output,
        said(kProbe, "", "\"x\"").standard_output + said(kProbe, "", "\"x\"").standard_output,
        "noise\n" + said(kProbe, "", "\"x\"").standard_output, std::string(5U << 20, 'x')}) {
    sandbox::ExecResult result;
    result.standard_output = text;
    EXPECT_EQ(judge(kProbe, {}, result).verdict, Verdict::kUnclear) << text.substr(0, 200);
  }
}

TEST(Judge, BeingEndedIsFineForThoseWhoTakeMemoryAndForNobodyElse) {
  sandbox::ExecResult ended;
  ended.oom_killed = true;
  ended.exit_code = 137;
  Attack attack = kProbe;
  EXPECT_EQ(judge(attack, {}, ended).verdict, Verdict::kUnclear);
  attack.manner = Manner::kMemory;
  EXPECT_EQ(judge(attack, {}, ended).verdict, Verdict::kHeld);
}

TEST(Judge, ATimeLimitHasToEndInTime) {
  Attack attack = kProbe;
  attack.manner = Manner::kTimeLimit;
  sandbox::ExecResult ended;
  ended.timed_out = true;
  ended.duration_ms = 1500;
  EXPECT_EQ(judge(attack, {}, ended).verdict, Verdict::kHeld);
  ended.duration_ms = 15000;
  EXPECT_EQ(judge(attack, {}, ended).verdict, Verdict::kHole);
  EXPECT_EQ(judge(kProbe, {}, ended).verdict, Verdict::kUnclear);
}

TEST(Judge, WhatAWritableRootAllowsIsGrantedAndNothingElse) {
  policy::Spec spec;
  spec.root_mode = policy::RootMode::kThrowawayOverlay;
  const Judgement granted =
      judge(kProbe, spec, said(kProbe, "\"write /etc/passwd: it worked\"", ""));
  EXPECT_EQ(granted.verdict, Verdict::kGranted);
  EXPECT_NE(granted.detail.find("writable-root"), std::string::npos);
  const Judgement hole = judge(
      kProbe, spec, said(kProbe, "\"write /etc/passwd: it worked\",\"remount /: it worked\"", ""));
  EXPECT_EQ(hole.verdict, Verdict::kHole);
  EXPECT_EQ(hole.detail, "remount /: it worked");
}

TEST(Judge, WhatANetworkAllowsIsGrantedAndNothingElse) {
  const sandbox::ExecResult result = said(kOutside, "\"connect to 192.0.2.1:80: it worked\"", "");
  EXPECT_EQ(judge(kOutside, {}, result).verdict, Verdict::kHole);
  policy::Spec spec;
  spec.network.mode = policy::NetworkMode::kFull;
  EXPECT_EQ(judge(kOutside, spec, result).verdict, Verdict::kGranted);
  EXPECT_EQ(
      judge(kOutside, spec, said(kOutside, "\"not so: 'eth0' is the loopback interface\"", ""))
          .verdict,
      Verdict::kHole);
}

TEST(Judge, WhatABackendDoesNotPromiseIsNotApplicableWithItsReason) {
  const Attack attack{"E18", Group::kPrivileges, Manner::kProbe, "E18_NoexecPlacesExecuteNothing",
                      ""};
  policy::Spec spec;
  EXPECT_EQ(judge(attack, spec, said(attack, "\"x\"", "")).verdict, Verdict::kHole);
  spec.backend = policy::Backend::kBubblewrap;
  const Judgement known = judge(attack, spec, said(attack, "\"x\"", ""));
  EXPECT_EQ(known.verdict, Verdict::kNotApplicable);
  EXPECT_NE(known.detail.find("noexec"), std::string::npos);
}

}  // namespace
}  // namespace carrel::verify
