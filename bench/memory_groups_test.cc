#include "bench/memory_groups.h"

#include <gtest/gtest.h>

namespace carrel::bench {
namespace {

constexpr char kCounters[] = "cache 4096\nrss 8192\nrss_huge 1\ntotal_cache 12288\n";

TEST(MemoryGroups, AValueIsFoundByItsWholeName) {
  EXPECT_EQ(value_of(kCounters, "rss"), 8192U);
  EXPECT_EQ(value_of(kCounters, "cache"), 4096U);
  EXPECT_EQ(value_of(kCounters, "total_cache"), 12288U);
}

TEST(MemoryGroups, AMissingValueIsZero) {
  EXPECT_EQ(value_of(kCounters, "anon"), 0U);
  EXPECT_EQ(value_of(kCounters, "ss"), 0U);
  EXPECT_EQ(value_of("", "rss"), 0U);
}

}  // namespace
}  // namespace carrel::bench
