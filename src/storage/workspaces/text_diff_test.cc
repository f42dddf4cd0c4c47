#include "storage/workspaces/text_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace carrel::storage {
namespace {

std::string shown(const std::vector<Hunk>& hunks) {
  std::string text;
  for (const Hunk& hunk : hunks) {
    text += "@@ -" + std::to_string(hunk.old_start) + "," + std::to_string(hunk.old_lines) + " +" +
            std::to_string(hunk.new_start) + "," + std::to_string(hunk.new_lines) + " @@\n";
    for (const Hunk::Line& line : hunk.lines) {
      text += line.kind + line.text;
    }
  }
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

// As `patch` would do it, strictly.
std::string patched(std::string_view before, const std::vector<Hunk>& hunks) {
  const std::vector<std::string> old = lines_of(before);
  std::string text;
  std::size_t at = 0;
  for (const Hunk& hunk : hunks) {
    const std::size_t start = hunk.old_lines == 0 ? hunk.old_start : hunk.old_start - 1;
    EXPECT_GE(start, at) << "hunks overlap";
    while (at < start) {
      text += old.at(at++);
    }
    EXPECT_EQ(lines_of(text).size() + 1, hunk.new_start + (hunk.new_lines == 0 ? 1 : 0));
    for (const Hunk::Line& line : hunk.lines) {
      if (line.kind != '+') {
        EXPECT_EQ(old.at(at), line.text);
        ++at;
      }
      text += line.kind != '-' ? line.text : "";
    }
  }
  while (at < old.size()) {
    text += old[at++];
  }
  return text;
}

TEST(TextDiff, ShowsWhatChangedWithThreeLinesAround) {
  EXPECT_EQ(shown(compare_text("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n")),
            "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

TEST(TextDiff, EmptyAndMissingEndsOfLines) {
  EXPECT_TRUE(compare_text("", "").empty());
  EXPECT_TRUE(compare_text("a\nb", "a\nb").empty());
  EXPECT_EQ(shown(compare_text("", "a\n")), "@@ -0,0 +1,1 @@\n+a\n");
  EXPECT_EQ(shown(compare_text("a\n", "")), "@@ -1,1 +0,0 @@\n-a\n");
  EXPECT_EQ(shown(compare_text("a", "a\n")), "@@ -1,1 +1,1 @@\n-a+a\n");
}

TEST(TextDiff, AnyTwoTextsAreLedIntoEachOther) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const auto text = [&] {
      std::string made;
      for (auto lines = random() % 40; lines > 0; --lines) {
        made += std::string(1, static_cast<char>('a' + random() % 4)) + "\n";
      }
      return random() % 3 == 0 ? made + "x" : made;
    };
    const std::string before = text();
    const std::string after = text();
    ASSERT_EQ(patched(before, compare_text(before, after)), after) << before << "->\n" << after;
  }
}

TEST(TextDiff, HasNoMoreLinesThanItNeeds) {
  std::string before;
  for (int i = 0; i < 500; ++i) {
    before += std::to_string(i) + "\n";
  }
  std::string after = before;
  after.replace(after.find("\n250\n"), 5, "\nnew\n");
  const std::vector<Hunk> hunks = compare_text(before, after);
  ASSERT_EQ(hunks.size(), 1U);
  EXPECT_EQ(hunks[0].lines.size(), 8U);
}

TEST(TextDiff, TextsWithNothingInCommonTakeNoLongTime) {
  std::string before;
  std::string after;
  for (int i = 0; i < 100'000; ++i) {
    before += "a" + std::to_string(i) + "\n";
    after += "b" + std::to_string(i) + "\n";
  }
  const std::vector<Hunk> hunks = compare_text(before, after);
  ASSERT_EQ(hunks.size(), 1U);
  EXPECT_EQ(hunks[0].old_lines, 100'000U);
}

TEST(TextDiff, BytesThatAreNoTextAreTold) {
  EXPECT_TRUE(is_binary(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_binary("text\n\xff"));
  EXPECT_TRUE(is_binary(std::string(kLargestText + 1, 'a')));
}

}  // namespace
}  // namespace carrel::storage
