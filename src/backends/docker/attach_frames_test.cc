#include "backends/docker/attach_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/unique_fd.h"

namespace carrel::docker {
namespace {

std::string head(std::uint32_t size, char stream = 1) {
  std::string text = {stream, 0, 0, 0};
  for (int i = 3; i >= 0; --i) {
    text += static_cast<char>(size >> (8 * i) & 0xff);
  }
  return text;
}

std::string frame(const std::string& text) {
  return head(static_cast<std::uint32_t>(text.size())) + text;
}

// What is left of the bytes when they come in pieces; nothing: they are refused.
std::optional<std::string> strip(const std::string& all, std::size_t piece) {
  AttachFrames frames;
  std::string out;
  for (std::size_t at = 0; at < all.size(); at += piece) {
    std::string part = all.substr(at, piece);
    const auto kept = frames.strip(part);
    if (!kept.has_value()) {
      return std::nullopt;
    }
    out.append(part, 0, *kept);
  }
  return out;
}

TEST(AttachFrames, FramesAreTakenApartHoweverTheyCome) {
  const std::string all = frame("one ") + frame("t") + frame("wo");
  for (std::size_t piece = 1; piece <= all.size(); ++piece) {
    EXPECT_EQ(strip(all, piece), "one two") << piece;
  }
}

TEST(AttachFrames, WhetherAFrameIsWholeIsKnown) {
  AttachFrames frames;
  EXPECT_TRUE(frames.between());
  std::string half = frame("text").substr(0, 9);
  EXPECT_EQ(frames.strip(half), 1U);
  EXPECT_FALSE(frames.between());
  std::string rest = "ext";
  EXPECT_EQ(frames.strip(rest), 3U);
  EXPECT_TRUE(frames.between());
  std::string part = "\1";
  EXPECT_EQ(frames.strip(part), 0U);
  EXPECT_FALSE(frames.between());
}

TEST(AttachFrames, AnotherStreamIsRefused) {
  for (const char stream : {'\0', '\2', '\3', '\4', 'H', '\xff'}) {
    EXPECT_EQ(strip(head(1, stream) + "x", 100), std::nullopt) << static_cast<int>(stream);
  }
}

TEST(AttachFrames, WhatHasToBeZeroIs) {
  for (std::size_t i = 1; i <= 3; ++i) {
    std::string text = frame("x");
    text[i] = 1;
    EXPECT_EQ(strip(text, 100), std::nullopt) << i;
  }
}

TEST(AttachFrames, AFrameOfNothingOrOfTooMuchIsRefused) {
  EXPECT_EQ(strip(head(0), 100), std::nullopt);
  EXPECT_EQ(strip(head(AttachFrames::kLargest + 1), 100), std::nullopt);
  EXPECT_EQ(strip(head(0xffffffff), 100), std::nullopt);
  EXPECT_EQ(strip(head(AttachFrames::kLargest) + "x", 100), "x");
}

TEST(AttachFrames, WhatWasRefusedStaysSo) {
  AttachFrames frames;
  std::string wrong = head(1, 2);
  EXPECT_EQ(frames.strip(wrong), std::nullopt);
  std::string right = frame("x");
  EXPECT_EQ(frames.strip(right), std::nullopt);
  EXPECT_FALSE(frames.between());
}

TEST(AttachFrames, ADescriptorIsReadAsFarAsItGoes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  AttachFrames frames;
  std::array<char, 64> buffer{};
  const auto put = [&](const std::string& text) {
    ASSERT_EQ(::write(out.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  put(head(2));
  EXPECT_EQ(frames.read(in.get(), buffer), -1);
  EXPECT_EQ(errno, EAGAIN);
  put("ab");
  EXPECT_EQ(frames.read(in.get(), buffer), 2);
  EXPECT_EQ(std::string(buffer.data(), 2), "ab");
  put(head(1, 2));
  EXPECT_EQ(frames.read(in.get(), buffer), -1);
  EXPECT_EQ(errno, EBADMSG);
  out.reset();
  EXPECT_EQ(frames.read(in.get(), buffer), 0);
}

}  // namespace
}  // namespace carrel::docker
