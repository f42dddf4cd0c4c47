#include "policy/suggest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace carrel::policy {
namespace {

constexpr std::array<std::string_view, 6> kWords = {"memory", "memory_limit", "cpus",
                                                    "pids",   "timeout",      "network"};

TEST(SuggestTest, DistanceCountsEachEditOnce) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("memroy", "memory"), 1U);
  EXPECT_EQ(edit_distance("memry", "memory"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(SuggestTest, MisspelledWordsFindTheirName) {
  EXPECT_EQ(nearest("memory_limt", kWords), "memory_limit");
  EXPECT_EQ(nearest("memroy", kWords), "memory");
  EXPECT_EQ(nearest("timout", kWords), "timeout");
  EXPECT_EQ(nearest("cpu", kWords), "cpus");
}

TEST(SuggestTest, AnOnlyPrefixFindsItsName) {
  EXPECT_EQ(nearest("netw", kWords), "network");
  EXPECT_EQ(nearest("ne", kWords), "");
}

TEST(SuggestTest, FarWordsFindNothing) {
  EXPECT_EQ(nearest("banana", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(1 << 16, 'm'), kWords), "");
  EXPECT_EQ(nearest("memory", {}), "");
}

TEST(SuggestTest, TheQuestionNamesTheWord) {
  EXPECT_EQ(did_you_mean("timout", kWords), "did you mean 'timeout'?");
  EXPECT_EQ(did_you_mean("xyzzy", kWords), "");
}

}  // namespace
}  // namespace carrel::policy
