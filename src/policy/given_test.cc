#include "policy/given.h"

#include <gtest/gtest.h>

#include <string>

namespace carrel::policy {
namespace {

TEST(GivenTest, PlainTextIsShownAsItIs) {
  EXPECT_EQ(quote("512m"), "'512m'");
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("gr\xc3\xb6\xc3\x9f"
                  "e"),
            "'gr\xc3\xb6\xc3\x9f"
            "e'");
}

TEST(GivenTest, ControlBytesAreEscaped) {
  EXPECT_EQ(quote("a\nb\tc\x1b[31m\x7f"), "'a\\nb\\tc\\x1b[31m\\x7f'");
  EXPECT_EQ(quote(std::string_view("a\0b", 3)), "'a\\x00b'");
  EXPECT_EQ(quote("a\\n"), "'a\\\\n'");
}

TEST(GivenTest, InvalidUtf8IsEscaped) {
  EXPECT_EQ(quote("\xff\xfe"), "'\\xff\\xfe'");
  EXPECT_EQ(quote("\xc3"), "'\\xc3'");
  EXPECT_EQ(quote("\xc0\x80"), "'\\xc0\\x80'");
  EXPECT_EQ(quote("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(quote("\xf5\x80\x80\x80"), "'\\xf5\\x80\\x80\\x80'");
}

TEST(GivenTest, TextThatTurnsTheLineAroundIsEscaped) {
  EXPECT_EQ(quote("a\xe2\x80\xae"
                  "b"),
            "'a\\u{202e}b'");
  EXPECT_EQ(quote("\xc2\x9b"), "'\\u{9b}'");
}

TEST(GivenTest, HugeTextIsCut) {
  const std::string text = quote(std::string(1 << 20, 'x'));
  EXPECT_LT(text.size(), 80U);
  EXPECT_TRUE(text.ends_with("...'"));
}

TEST(GivenTest, ShapeSeparatesControlBytesFromBrokenText) {
  EXPECT_EQ(shape_of("plain \xe2\x82\xac"), TextShape::kPlain);
  EXPECT_EQ(shape_of("a\nb"), TextShape::kControlBytes);
  EXPECT_EQ(shape_of(std::string_view("\0", 1)), TextShape::kControlBytes);
  EXPECT_EQ(shape_of("\xff"), TextShape::kInvalidUtf8);
}

TEST(GivenTest, ErrorsNameTheOptionAndTheText) {
  const Given given{"--memory", "lots"};
  EXPECT_EQ(bad_value(given, "not a size", "try 512m").to_string(),
            "--memory 'lots': not a size (try 512m)");
  EXPECT_EQ(bad_value(given, "no").code, Code::kInvalid);
  EXPECT_EQ(not_built(given, "only so").to_string(), "--memory 'lots' is not built yet: only so");
  EXPECT_EQ(not_built(given, "only so").code, Code::kUnavailable);
}

}  // namespace
}  // namespace carrel::policy
