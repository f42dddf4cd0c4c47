#include "guest/file_text.h"

#include <gtest/gtest.h>

#include <string>

namespace carrel::guest {
namespace {

TEST(MatchesPattern, KnowsStarsQuestionMarksAndSets) {
  EXPECT_TRUE(matches_pattern("main.cc", "*.cc"));
  EXPECT_FALSE(matches_pattern("main.cc", "*.c"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_FALSE(matches_pattern("", "?"));
  EXPECT_TRUE(matches_pattern("a1", "[a-c][0-9]"));
  EXPECT_FALSE(matches_pattern("d1", "[a-c][0-9]"));
  EXPECT_TRUE(matches_pattern("d1", "[!a-c]?"));
  EXPECT_TRUE(matches_pattern("a]", "a[]]"));
  EXPECT_TRUE(matches_pattern("a[b", "a[b"));
  EXPECT_TRUE(matches_pattern("*", "\\*"));
  EXPECT_FALSE(matches_pattern("x", "\\*"));
  EXPECT_TRUE(matches_pattern("abcabd", "*ab?"));
  EXPECT_TRUE(matches_pattern("\xff\n", "\xff?"));
}

TEST(MatchesPattern, ManyStarsEndSoon) {
  const std::string name(4000, 'a');
  std::string pattern;
  for (int i = 0; i < 1000; ++i) {
    pattern += "a*";
  }
  EXPECT_FALSE(matches_pattern(name, pattern + "b"));
}

// R158, B-49
TEST(UsualClutter, IsComparedByWholeNames) {
  EXPECT_TRUE(is_usual_clutter("build", NameOf::kDirectory));
  EXPECT_FALSE(is_usual_clutter("rebuild", NameOf::kDirectory));
  EXPECT_FALSE(is_usual_clutter("build", NameOf::kFile));
  EXPECT_TRUE(is_usual_clutter("node_modules", NameOf::kDirectory));
  EXPECT_FALSE(is_usual_clutter("my_node_modules", NameOf::kDirectory));
  EXPECT_TRUE(is_usual_clutter("a.png", NameOf::kFile));
  EXPECT_FALSE(is_usual_clutter("png", NameOf::kFile));
  EXPECT_TRUE(is_usual_clutter("package-lock.json", NameOf::kFile));
}

TEST(FindText, IgnoresTheCaseOfLettersWhenAsked) {
  EXPECT_EQ(find_text("a Word", "word", LetterCase::kExact), std::string_view::npos);
  EXPECT_EQ(find_text("a Word", "word", LetterCase::kIgnored), 2U);
  EXPECT_EQ(find_text("ab", "abc", LetterCase::kIgnored), std::string_view::npos);
  EXPECT_EQ(find_text(std::string_view("a\0b", 3), std::string_view("\0b", 2), LetterCase::kExact),
            1U);
}

// R152
TEST(Occurrences, AreCountedWithTheirLines) {
  Occurrences found = find_occurrences("one\ntwo\none\n", "one");
  EXPECT_EQ(found.count, 2U);
  EXPECT_EQ(found.lines[0], 1U);
  EXPECT_EQ(found.lines[1], 3U);
  found = find_occurrences("all:\n\tcc main.c\n", "\tcc main.c");
  EXPECT_EQ(found.count, 1U);
  EXPECT_EQ(found.first, 5U);
  EXPECT_EQ(found.lines[0], 2U);
  EXPECT_EQ(find_occurrences("aaaa", "aa").count, 2U);
  EXPECT_EQ(find_occurrences("", "a").count, 0U);
  EXPECT_EQ(find_occurrences("a", "ab").count, 0U);
}

std::string lines(const std::string& text, std::uint64_t first, std::uint64_t last,
                  std::size_t piece) {
  LineRange range(first, last);
  std::string taken;
  for (std::size_t at = 0; at < text.size() && !range.over(); at += piece) {
    taken += range.take(std::string_view(text).substr(at, piece));
  }
  return taken;
}

// R155
TEST(LineRange, TakesTheLinesThatWereAskedForInPiecesOfAnySize) {
  const std::string text = "1\n22\n333\n\n55555\nsix";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(lines(text, 3, 5, piece), "333\n\n55555\n") << piece;
    EXPECT_EQ(lines(text, 1, 1, piece), "1\n") << piece;
    EXPECT_EQ(lines(text, 6, 6, piece), "six") << piece;
    EXPECT_EQ(lines(text, 7, 9, piece), "") << piece;
    EXPECT_EQ(lines(text, 1, ~0ULL, piece), text) << piece;
    EXPECT_EQ(lines(text, 2, 1, piece), "") << piece;
  }
}

TEST(LineRange, CountsLines) {
  LineRange range(10, 20);
  EXPECT_EQ(range.take("a\nb\nc"), "");
  EXPECT_EQ(range.lines(), 3U);
  EXPECT_EQ(range.take("\n"), "");
  EXPECT_EQ(range.lines(), 3U);
}

}  // namespace
}  // namespace carrel::guest
