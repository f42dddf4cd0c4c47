#include "base/utf8.h"

#include <gtest/gtest.h>

namespace carrel {
namespace {

TEST(Utf8, TextOfEveryLengthIsValid) {
  EXPECT_TRUE(valid_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
}

TEST(Utf8, BytesThatAreNotTextBecomeReplacementCharacters) {
  EXPECT_EQ(replace_invalid_utf8("\xff\xfe\n"), "\xef\xbf\xbd\xef\xbf\xbd\n");
  EXPECT_EQ(replace_invalid_utf8("a\xe2\x82"), "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Utf8, OverlongFormsAndSurrogatesAreNotValid) {
  EXPECT_FALSE(valid_utf8("\xc0\xae"));
  EXPECT_FALSE(valid_utf8("\xe0\x80\xaf"));
  EXPECT_FALSE(valid_utf8("\xed\xa0\x80"));
  EXPECT_FALSE(valid_utf8("\xf4\x90\x80\x80"));
}

}  // namespace
}  // namespace carrel
