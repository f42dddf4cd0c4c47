#include "guest/runtime.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace carrel::guest {
namespace {

std::string decimal(std::uint64_t value) {
  std::array<char, 20> digits{};
  return {digits.data(), put_decimal(digits.data(), value)};
}

TEST(PutDecimal, WritesEveryNumber) {
  EXPECT_EQ(decimal(0), "0");
  EXPECT_EQ(decimal(9), "9");
  EXPECT_EQ(decimal(10), "10");
  EXPECT_EQ(decimal(1'000'000), "1000000");
  EXPECT_EQ(decimal(~0ULL), "18446744073709551615");
}

TEST(Text, AddsPiecesAndNumbers) {
  Text<64> text;
  text.add("/proc/").add_number(42).add("/stat");
  EXPECT_EQ(text.view(), "/proc/42/stat");
  EXPECT_STREQ(text.c_str(), "/proc/42/stat");
}

TEST(Text, WhatDoesNotFitIsCut) {
  Text<8> text;
  text.add("0123456789").add("more").add_number(7);
  EXPECT_EQ(text.view(), "0123456");
  EXPECT_STREQ(text.c_str(), "0123456");
}

TEST(Clock, NeverGoesBack) {
  const std::uint64_t first = now_us();
  EXPECT_GE(now_us(), first);
  EXPECT_GT(wall_clock_ms(), 1'600'000'000'000U);
}

TEST(GuestRuntime, ADirectoryIsOpenedAndALinkToOneIsNot) {
  std::string name = testing::TempDir() + "carrel-guest-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const int root = ::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(root, 0);
  ASSERT_EQ(::mkdirat(root, "closed", 0400), 0);
  ASSERT_EQ(::symlinkat("closed", root, "link"), 0);
  const int closed = open_directory(root, "closed");
  EXPECT_GE(closed, 0);
  EXPECT_LT(open_directory(root, "link"), 0);
  EXPECT_EQ(errno, ENOTDIR);
  EXPECT_LT(open_directory(root, "missing"), 0);
  EXPECT_EQ(errno, ENOENT);
  ::close(closed);
  ::unlinkat(root, "link", 0);
  ::unlinkat(root, "closed", AT_REMOVEDIR);
  ::close(root);
  ::rmdir(name.c_str());
}

// By openat2, and name by name where the kernel does not have that.
class OpenBeneath : public testing::TestWithParam<int (*)(int, const char*, int)> {};
INSTANTIATE_TEST_SUITE_P(, OpenBeneath, testing::Values(&open_beneath, &walk_beneath),
                         [](const auto& one) { return one.index == 0 ? "AtOnce" : "NameByName"; });

TEST_P(OpenBeneath, FollowsNoLinkAndStaysInside) {
  const auto open_path = GetParam();
  std::string name = testing::TempDir() + "carrel-guest-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const int root = ::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(root, 0);
  ASSERT_EQ(::mkdirat(root, "directory", 0700), 0);
  ASSERT_EQ(::mkdirat(root, "directory/below", 0700), 0);
  ASSERT_EQ(::mknodat(root, "file", S_IFREG | 0600, 0), 0);
  ASSERT_EQ(::symlinkat("/etc", root, "out"), 0);
  ASSERT_EQ(::symlinkat("directory", root, "in"), 0);
  const int inside = open_path(root, "directory", O_PATH | O_DIRECTORY);
  EXPECT_GE(inside, 0);
  EXPECT_EQ(open_path(root, "out", O_PATH | O_DIRECTORY), -ELOOP);
  EXPECT_EQ(open_path(root, "in", O_PATH | O_DIRECTORY), -ELOOP);
  EXPECT_EQ(open_path(root, "out/passwd", O_RDONLY), -ELOOP);
  EXPECT_EQ(open_path(root, "missing", O_RDONLY), -ENOENT);
  EXPECT_EQ(open_path(root, "file", O_PATH | O_DIRECTORY), -ENOTDIR);
  EXPECT_EQ(open_path(root, "file/below", O_PATH), -ENOTDIR);
  EXPECT_EQ(open_path(root, std::string(256, 'n').c_str(), O_PATH), -ENAMETOOLONG);
  const int below = open_path(root, "directory/./below", O_PATH | O_DIRECTORY);
  EXPECT_GE(below, 0);
  ::close(below);
  // ".." ends at the root, or is refused.
  struct stat above{};
  struct stat own{};
  if (const int up = open_path(root, "../../..", O_PATH | O_DIRECTORY); up != -EXDEV) {
    ASSERT_GE(up, 0);
    EXPECT_EQ(::fstat(up, &above), 0);
    EXPECT_EQ(::fstat(root, &own), 0);
    EXPECT_EQ(above.st_ino, own.st_ino);
    ::close(up);
  }
  ::close(inside);
  ::unlinkat(root, "out", 0);
  ::unlinkat(root, "in", 0);
  ::unlinkat(root, "file", 0);
  ::unlinkat(root, "directory/below", AT_REMOVEDIR);
  ::unlinkat(root, "directory", AT_REMOVEDIR);
  ::close(root);
  ::rmdir(name.c_str());
}

TEST(WriteWhole, WritesAllOrSaysThatItDidNot) {
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  EXPECT_TRUE(write_whole(ends[1], "hello"));
  EXPECT_TRUE(write_whole(ends[1], ""));
  std::array<char, 16> buffer{};
  EXPECT_EQ(::read(ends[0], buffer.data(), buffer.size()), 5);
  EXPECT_FALSE(write_whole(ends[0], "not a writer"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(WriteFile, ReturnsTheKernelsAnswer) {
  EXPECT_EQ(write_file(AT_FDCWD, "/dev/null", "value"), 0);
  EXPECT_EQ(write_file(AT_FDCWD, "/nonexistent/file", "value"), -ENOENT);
  EXPECT_EQ(write_file(AT_FDCWD, "/dev/full", "value"), -ENOSPC);
}

}  // namespace
}  // namespace carrel::guest
