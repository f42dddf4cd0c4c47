#include "journal/switches.h"

#include <gtest/gtest.h>

namespace carrel::journal {
namespace {

TEST(Switches, NothingZeroAndFalseAreOff) {
  for (const char* value : {"", "0", "false", "False", "no", "off"}) {
    const auto parsed = parse_switch("DISABLE_CACHE", value);
    ASSERT_TRUE(parsed.ok()) << value;
    EXPECT_FALSE(parsed.value()) << value;
  }
}

TEST(Switches, OneAndTrueAreOn) {
  for (const char* value : {"1", "true", "TRUE", "yes", "on"}) {
    const auto parsed = parse_switch("FORCE_FAILURE", value);
    ASSERT_TRUE(parsed.ok()) << value;
    EXPECT_TRUE(parsed.value()) << value;
  }
}

TEST(Switches, AnythingElseIsRefusedByName) {
  const auto parsed = parse_switch("DISABLE_CACHE", "maybe");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("DISABLE_CACHE"), std::string::npos);
}

TEST(Switches, AreReadFromTheEnvironment) {
  ::setenv("DISABLE_CACHE", "0", 1);
  ::setenv("FORCE_FAILURE", "1", 1);
  const auto switches = switches_from_environment();
  ::unsetenv("DISABLE_CACHE");
  ::unsetenv("FORCE_FAILURE");
  ASSERT_TRUE(switches.ok());
  EXPECT_FALSE(switches.value().disable_cache);
  EXPECT_TRUE(switches.value().force_failure);
}

}  // namespace
}  // namespace carrel::journal
