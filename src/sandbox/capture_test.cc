#include "sandbox/capture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

namespace carrel::sandbox {
namespace {

constexpr std::size_t kPart = Capture::kPart;

// The first `size` of many bytes that tell where they stand.
std::string numbered(std::size_t size) {
  static const std::string kAll = [] {
    std::string text(7 * kPart, '\0');
    for (std::uint32_t at = 0; at < text.size(); at += sizeof at) {
      std::memcpy(text.data() + at, &at, sizeof at);
    }
    return text;
  }();
  return kAll.substr(0, size);
}

Capture capture_of(std::string_view text, std::size_t piece) {
  Capture capture;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    capture.add(text.substr(at, piece));
  }
  return capture;
}

std::string with_marker(const std::string& text) {
  const std::size_t missing = text.size() - 2 * kPart;
  return text.substr(0, kPart) + "\n[carrel: " + std::to_string(missing) +
         " bytes are not shown here]\n" + text.substr(text.size() - kPart);
}

TEST(Capture, NothingIsNothing) {
  Capture capture;
  capture.add("");
  EXPECT_EQ(capture.text(), "");
  EXPECT_EQ(capture.total(), 0U);
  EXPECT_FALSE(capture.cut());
}

TEST(Capture, ShortStreamIsKeptByteForByte) {
  const std::string text("a\n\n b\0\xff", 7);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, text.size()}) {
    EXPECT_EQ(capture_of(text, piece).text(), text);
  }
}

TEST(Capture, UpToTwoPartsNothingIsCut) {
  for (const std::size_t size : {kPart - 1, kPart, kPart + 1, 2 * kPart - 1, 2 * kPart}) {
    const std::string text = numbered(size);
    const Capture capture = capture_of(text, 65'521);
    EXPECT_FALSE(capture.cut()) << size;
    EXPECT_EQ(capture.total(), size);
    EXPECT_TRUE(capture.text() == text) << size;
  }
}

TEST(Capture, LongStreamKeepsItsFirstAndLastPartExactly) {
  for (const std::size_t size : {2 * kPart + 1, 2 * kPart + 4096, 3 * kPart, 4 * kPart + 12'345}) {
    const std::string text = numbered(size);
    for (const std::size_t piece : {std::size_t{7'919}, std::size_t{65'536}, kPart - 1, size}) {
      const Capture capture = capture_of(text, piece);
      EXPECT_TRUE(capture.cut()) << size;
      EXPECT_EQ(capture.total(), size);
      EXPECT_TRUE(capture.text() == with_marker(text)) << size << " in pieces of " << piece;
    }
  }
}

TEST(Capture, PieceLongerThanAPartAfterAFullTailLeavesItsOwnEnd) {
  const std::string text = numbered(7 * kPart);
  Capture capture;
  capture.add(std::string_view(text).substr(0, 2 * kPart + 17));
  capture.add(std::string_view(text).substr(2 * kPart + 17));
  EXPECT_TRUE(capture.text() == with_marker(text));
}

TEST(Capture, TextStaysBoundedHoweverMuchComes) {
  const std::string piece(1U << 20, 'y');
  Capture capture;
  for (int i = 0; i < 200; ++i) {
    capture.add(piece);
  }
  EXPECT_EQ(capture.total(), 200ULL << 20);
  EXPECT_LT(capture.text().size(), 2 * kPart + 100);
}

}  // namespace
}  // namespace carrel::sandbox
