#include "server/byte_range.h"

#include <gtest/gtest.h>

#include <string>

namespace carrel::server {
namespace {

using Kind = ByteRange::Kind;

void expect_part(std::string_view header, std::uint64_t size, std::uint64_t from,
                 std::uint64_t count) {
  const ByteRange range = parse_byte_range(header, size);
  EXPECT_EQ(range.kind, Kind::kPart) << header;
  EXPECT_EQ(range.from, from) << header;
  EXPECT_EQ(range.count, count) << header;
}

TEST(ByteRange, APartIsFromItsFirstByteToItsLast) {
  expect_part("bytes=0-0", 10, 0, 1);
  expect_part("bytes=2-5", 10, 2, 4);
  expect_part("bytes=9-", 10, 9, 1);
  expect_part("bytes=0-", 10, 0, 10);
  expect_part("bytes=-3", 10, 7, 3);
}

TEST(ByteRange, APartEndsWhereTheFileDoes) {
  expect_part("bytes=5-100", 10, 5, 5);
  expect_part("bytes=-100", 10, 0, 10);
  expect_part("bytes=1-18446744073709551615", 10, 1, 9);
}

TEST(ByteRange, BehindTheEndThereIsNothing) {
  for (const char* header :
       {"bytes=10-", "bytes=10-20", "bytes=-0", "bytes=18446744073709551615-"}) {
    EXPECT_EQ(parse_byte_range(header, 10).kind, Kind::kUnsatisfiable) << header;
  }
  EXPECT_EQ(parse_byte_range("bytes=0-", 0).kind, Kind::kUnsatisfiable);
  EXPECT_EQ(parse_byte_range("bytes=-1", 0).kind, Kind::kUnsatisfiable);
}

TEST(ByteRange, WhatIsNoSingleRangeIsTheWhole) {
  for (const char* header :
       {"", "bytes", "bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "bytes= 0-1", "bytes=0 -1",
        "lines=0-1", "bytes=a-b", "bytes=0x1-2", "bytes=+1-2", "bytes=1--2",
        "bytes=18446744073709551616-", "bytes=0-18446744073709551616"}) {
    EXPECT_EQ(parse_byte_range(header, 10).kind, Kind::kWhole) << header;
  }
}

}  // namespace
}  // namespace carrel::server
