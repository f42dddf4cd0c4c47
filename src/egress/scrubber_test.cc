#include "egress/scrubber.h"

#include <gtest/gtest.h>

namespace carrel::egress {
namespace {

constexpr char kSecret[] = "abacabad-secret";

std::string covered(std::initializer_list<std::string_view> pieces) {
  Scrubber scrubber;
  scrubber.add(kSecret);
  std::string shown;
  for (const std::string_view piece : pieces) {
    shown += scrubber.feed(piece);
  }
  return shown + scrubber.finish();
}

TEST(Scrubber, ASecretIsCoveredAndNothingElse) {
  EXPECT_EQ(covered({"x abacabad-secret y"}), "x *************** y");
  EXPECT_EQ(covered({"nothing of it"}), "nothing of it");
}

TEST(Scrubber, ASecretInPiecesIsCoveredWhereverItIsCut) {
  const std::string text = "<<abacabad-secretabacabad-secret>>";
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(covered({text.substr(0, i), text.substr(i, j - i), text.substr(j)}),
                "<<" + std::string(30, '*') + ">>");
    }
  }
}

TEST(Scrubber, AFalseBeginningInsideOfABeginningIsNoWayAround) {
  EXPECT_EQ(covered({"abac", "abacabad-secret"}), "abac***************");
  EXPECT_EQ(covered({"abacaba", "cabad-secret"}), "abac***************");
}

TEST(Scrubber, WhatCannotBecomeASecretIsShownAtOnce) {
  Scrubber scrubber;
  scrubber.add(kSecret);
  EXPECT_EQ(scrubber.feed("data: 1\n\n"), "data: 1\n\n");
  EXPECT_EQ(scrubber.feed("ends in aba"), "ends in ");
  EXPECT_EQ(scrubber.feed("!"), "aba!");
}

TEST(Scrubber, SecretsThatOverlapAreBothCovered) {
  Scrubber scrubber;
  scrubber.add("12345678");
  scrubber.add("56789abc");
  std::string shown;
  for (const char c : std::string_view("x123456789abcx")) {
    shown += scrubber.feed({&c, 1});
  }
  EXPECT_EQ(shown + scrubber.finish(), "x************x");
}

TEST(Scrubber, WithoutSecretsNothingIsKeptBack) {
  Scrubber scrubber;
  EXPECT_TRUE(scrubber.idle());
  EXPECT_EQ(scrubber.feed("abacabad"), "abacabad");
}

}  // namespace
}  // namespace carrel::egress
