#include "policy/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carrel::policy {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(NamesTest, NamesAreFileNamesAndNeverPaths) {
  for (const std::string_view text : {"a", "sandbox_1a2b3c4d", "my.box-2", "7"}) {
    EXPECT_TRUE(check_name({"name", text}).ok()) << text;
  }
  const std::string longest(64, 'a');
  const std::string too_long(65, 'a');
  EXPECT_TRUE(check_name({"name", longest}).ok());
  for (const std::string_view text :
       {"", ".", "..", "../x", "a/b", ".a", "-a", "_a", "a b", "a\n", "\xff", "\xc3\xa4"}) {
    EXPECT_FALSE(check_name({"name", text}).ok()) << text;
  }
  EXPECT_FALSE(check_name({"name", too_long}).ok());
  EXPECT_FALSE(check_name({"name", std::string_view("a\0b", 3)}).ok());
}

TEST(NamesTest, PathsBecomeAsShortAsTheyGo) {
  const struct {
    std::string_view text;
    std::string_view path;
  } kTable[] = {{"/", "/"},
                {"/workspace", "/workspace"},
                {"/a//b/./c/", "/a/b/c"},
                {"//", "/"},
                {"/.", "/"},
                {"/...", "/..."},
                {"/a b", "/a b"},
                {"/..a", "/..a"}};
  for (const auto& row : kTable) {
    const auto result = normalize_path({"workdir", row.text});
    ASSERT_TRUE(result.ok()) << row.text;
    EXPECT_EQ(result.value(), row.path);
  }
}

TEST(NamesTest, PathsThatClimbOrHideAreRefused) {
  const std::string too_long = "/" + std::string(4095, 'a');
  for (const std::string_view text :
       {"", "a", "./a", "~", "/..", "/a/../b", "/a/..", "/a\nb", "/\xff", "/a\x7f"}) {
    EXPECT_FALSE(normalize_path({"--workdir", text}).ok()) << text;
  }
  EXPECT_FALSE(normalize_path({"--workdir", too_long}).ok());
  EXPECT_FALSE(normalize_path({"--workdir", std::string_view("/a\0b", 4)}).ok());
}

TEST(NamesTest, HostnamesAreLabels) {
  for (const std::string_view text : {"sandbox", "a", "a-b.c", "Box1"}) {
    EXPECT_TRUE(check_hostname({"hostname", text}).ok()) << text;
  }
  const std::string too_long(64, 'a');
  for (const std::string_view text :
       {"", "-a", "a-", "a..b", ".", "a.", "a_b", "a b", "\xc3\xa4"}) {
    EXPECT_FALSE(check_hostname({"hostname", text}).ok()) << text;
  }
  EXPECT_FALSE(check_hostname({"hostname", too_long}).ok());
}

TEST(NamesTest, UserNamesCannotBreakThePasswordFile) {
  EXPECT_TRUE(check_user_name({"user", "agent"}).ok());
  EXPECT_TRUE(check_user_name({"user", "_x-1"}).ok());
  for (const std::string_view text : {"", "0", "Agent", "a:b", "a\nroot", "-a", "a/b"}) {
    EXPECT_FALSE(check_user_name({"user", text}).ok()) << text;
  }
}

TEST(NamesTest, ADigestPinsAnImage) {
  const std::string digits(64, 'a');
  EXPECT_TRUE(check_image_reference({"image", "x:1"}).ok());
  EXPECT_TRUE(check_image_reference({"image", "x:1@sha256:" + digits}).ok());
  EXPECT_FALSE(check_image_name({"image", "x:1@sha256:" + digits}).ok());
  for (const std::string& pin :
       {std::string("@"), std::string("@sha256:"), "@sha512:" + digits, "@sha256:" + digits + "a",
        "@sha256:" + std::string(64, 'A'), "@sha256:" + digits + "@sha256:" + digits}) {
    EXPECT_FALSE(check_image_reference({"image", "x" + pin}).ok()) << pin;
  }
  EXPECT_FALSE(check_image_reference({"image", "@sha256:" + digits}).ok());
}

TEST(NamesTest, VariablesHaveANameAndAValue) {
  const auto plain = parse_variable({"--env", "A_1=b=c d"});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value().name, "A_1");
  EXPECT_EQ(plain.value().value, "b=c d");
  EXPECT_EQ(parse_variable({"--env", "A="}).value().value, "");
  EXPECT_EQ(parse_variable({"--env", "LD_PRELOAD=/x.so"}).value().name, "LD_PRELOAD");
  EXPECT_EQ(parse_variable({"--env", "A=\xff\n"}).value().value, "\xff\n");
  for (const std::string_view text :
       {"", "=x", "1A=x", "A B=x", "A", "BASH_FUNC_x%%=() { :; }", "\xc3\xa4=x", "A\n=x"}) {
    EXPECT_FALSE(parse_variable({"--env", text}).ok()) << text;
  }
  EXPECT_FALSE(parse_variable({"--env", std::string_view("A=a\0b", 5)}).ok());
}

TEST(NamesTest, AVariableAsLongAsTheKernelTakesIsTheLongest) {
  const std::string fits = "A=" + std::string(kLongestVariable - 3, 'x');
  EXPECT_TRUE(parse_variable({"--env", fits}).ok());
  EXPECT_FALSE(parse_variable({"--env", fits + "x"}).ok());
}

TEST(NamesTest, AnErrorDoesNotShowTheValueOfAVariable) {
  const auto result = parse_variable({"--env", "MY-KEY=secret"});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().to_string(), HasSubstr("'MY-KEY'"));
  EXPECT_THAT(result.error().to_string(), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace carrel::policy
