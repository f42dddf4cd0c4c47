#include "storage/images/apt_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(AptSourcesTest, LinesAreRead) {
  const auto sources = parse_apt_lines(
      "# comment\n"
      "deb http://m/debian bookworm main contrib # more\n"
      "deb-src http://m/debian bookworm main\n"
      "deb [arch=amd64 signed-by=/k.gpg] http://n/x bookworm-security main\n"
      "deb [ signed-by=/l.gpg ] http://o/x other main\n"
      "deb http://broken\n"
      "deb http://quote'd bookworm main\n");
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_THAT(sources[0].components, ElementsAre("main", "contrib"));
  EXPECT_EQ(sources[0].signed_by, "");
  EXPECT_EQ(sources[1].signed_by, "/k.gpg");
  EXPECT_EQ(sources[2].signed_by, "/l.gpg");
  EXPECT_THAT(lines_for_suite(sources, "bookworm"),
              ElementsAre("deb http://m/debian bookworm main contrib",
                          "deb [signed-by=/k.gpg] http://n/x bookworm-security main"));
}

TEST(AptSourcesTest, StanzasAreRead) {
  const auto sources = parse_apt_stanzas(
      "Types: deb deb-src\n"
      "# comment\n"
      "URIs: http://m/debian\n"
      "Suites: bookworm bookworm-updates\n"
      "Components: main\n"
      "Signed-By: /k.gpg\n"
      "\n"
      "Types: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n"
      "\n"
      "Types: deb-src\nURIs: http://src/debian\nSuites: bookworm\nComponents: main\n"
      "\n"
      "types: deb\nURIs: http://key/debian\nSuites: bookworm\nComponents: main\n"
      "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n URIs: http://not/this\n");
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_THAT(lines_for_suite(sources, "bookworm"),
              ElementsAre("deb [signed-by=/k.gpg] http://m/debian bookworm main",
                          "deb [signed-by=/k.gpg] http://m/debian bookworm-updates main",
                          "deb http://key/debian bookworm main"));
}

TEST(AptSourcesTest, AnotherReleaseComesFromTheSameMirror) {
  const auto sources = parse_apt_lines(
      "deb http://vendor/x vendor main\n"
      "deb http://m/debian bookworm main contrib\n");
  EXPECT_THAT(lines_for_suite(sources, "trixie"), ElementsAre("deb http://m/debian trixie main"));
  EXPECT_THAT(lines_for_suite({}, "trixie"), IsEmpty());
}

TEST(AptSourcesTest, MirrorsOfThisHostAreDirectories) {
  const auto sources = parse_apt_lines(
      "deb http://m/debian bookworm main\n"
      "deb file:///srv/mirror bookworm main\n"
      "deb copy:/srv/other bookworm main\n"
      "deb file:/srv/../etc bookworm main\n"
      "deb file:/ bookworm main\n");
  EXPECT_THAT(local_mirrors(sources), ElementsAre("/srv/mirror", "/srv/other"));
}

}  // namespace
}  // namespace carrel::storage
