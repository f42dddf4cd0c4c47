#include "policy/known_flaws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::policy {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(BuilderVersion, IsReadFromWhatProgramsTell) {
  const struct {
    const char* text;
    Version version;
  } kTable[] = {
      {"bubblewrap 0.8.0", {{0, 8, 0}}},
      {"bubblewrap 0.10.0+dfsg", {{0, 10, 0}}},
      {"runc 1.1.5+ds1", {{1, 1, 5}}},
      {"runc 1.2.0-rc.3", {{1, 2, 0}}},
      {"crun 1.8", {{1, 8, 0}}},
      {"1.15.0", {{1, 15, 0}}},
      {"dockerd 20.10.24+dfsg1", {{20, 10, 24}}},
      {"Firecracker v1.13.1", {{1, 13, 1}}},
      {"crun 1.14.1.0.0.0", {{1, 14, 1}}},
  };
  for (const auto& row : kTable) {
    const auto version = parse_version(row.text);
    ASSERT_TRUE(version.has_value()) << row.text;
    EXPECT_EQ(version->numbers, row.version.numbers) << row.text;
  }
  for (const char* text :
       {"", "runc", "x.y.z", "0..1", "runc 7", "runc -1.2.3", "runc 1.", "runc 99999999999.1.1"}) {
    EXPECT_FALSE(parse_version(text).has_value()) << text;
  }
}

TEST(BuilderVersion, IsComparedByNumbersAndNotByLetters) {
  EXPECT_LT(*parse_version("1.1.9"), *parse_version("1.1.12"));
  EXPECT_LT(*parse_version("0.8.0"), *parse_version("0.10.0"));
}

// L03
TEST(KnownFlaws, AreThoseOfTheBranchThatAVersionIsOf) {
  EXPECT_THAT(known_flaws({"runc 1.1.11"}), Contains("CVE-2024-21626"));
  EXPECT_THAT(known_flaws({"runc 1.1.12"}), Not(Contains("CVE-2024-21626")));
  EXPECT_THAT(known_flaws({"runc 1.2.7"}), Contains("CVE-2025-31133"));
  EXPECT_THAT(known_flaws({"runc 1.2.8"}), Not(Contains("CVE-2025-31133")));
  EXPECT_THAT(known_flaws({"runc 1.3.2"}), Contains("CVE-2025-52881"));
  EXPECT_THAT(known_flaws({"runc 1.3.5"}), ElementsAre("CVE-2026-41579"));
  EXPECT_THAT(known_flaws({"runc 1.3.6"}), IsEmpty());
  EXPECT_THAT(known_flaws({"runc 1.4.2"}), ElementsAre("CVE-2026-41579"));
  EXPECT_THAT(known_flaws({"runc 1.4.3"}), IsEmpty());
  EXPECT_THAT(known_flaws({"runc 1.5.0"}), IsEmpty());
  EXPECT_THAT(known_flaws({"crun 1.8"}), ElementsAre("CVE-2026-30892", "CVE-2026-47766"));
  EXPECT_THAT(known_flaws({"crun 1.27"}), ElementsAre("CVE-2026-47766"));
  EXPECT_THAT(known_flaws({"crun 1.28"}), IsEmpty());
  EXPECT_THAT(known_flaws({"firecracker 1.14.3"}), ElementsAre("CVE-2026-5747"));
  EXPECT_THAT(known_flaws({"firecracker 1.14.4"}), IsEmpty());
  EXPECT_THAT(known_flaws({"firecracker 1.15.0"}), ElementsAre("CVE-2026-5747"));
  EXPECT_THAT(known_flaws({"jailer 1.14.0"}), ElementsAre("CVE-2026-1386"));
  EXPECT_THAT(known_flaws({"jailer 1.13.2"}), IsEmpty());
  EXPECT_THAT(known_flaws({"dockerd 19.03.0"}), ElementsAre("CVE-2019-14271"));
  EXPECT_THAT(known_flaws({"dockerd 20.10.24+dfsg1"}), IsEmpty());
}

TEST(KnownFlaws, ASetUidBubblewrapHasOneWhateverItsVersion) {
  EXPECT_THAT(known_flaws({"bubblewrap 0.12.0"}), IsEmpty());
  EXPECT_THAT(known_flaws({"bubblewrap 0.12.0", Builder::Rights::kSetUid}),
              ElementsAre("CVE-2026-41163"));
}

TEST(KnownFlaws, OfAProgramOrAVersionThatNobodyKnowsThereAreNone) {
  EXPECT_THAT(known_flaws({"youki 0.1.0"}), IsEmpty());
  EXPECT_THAT(known_flaws({"runc"}), IsEmpty());
  EXPECT_EQ(flaw_warning({"runc 1.5.0"}), "");
}

TEST(KnownFlaws, TheWarningSaysThatDistributionsPatchWithoutChangingTheVersion) {
  const std::string warning = flaw_warning({"runc 1.1.5+ds1"});
  EXPECT_THAT(warning, HasSubstr("runc 1.1.5+ds1"));
  EXPECT_THAT(warning, HasSubstr("CVE-2024-21626"));
  EXPECT_THAT(warning, HasSubstr("distributions patch without changing it"));
}

}  // namespace
}  // namespace carrel::policy
