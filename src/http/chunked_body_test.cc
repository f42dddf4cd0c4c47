#include "http/chunked_body.h"

#include <gtest/gtest.h>

#include <utility>

namespace carrel::http {
namespace {

Bytes bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(ChunkedBody, EndsWhereItEnds) {
  for (const auto& [text, size] : {
           std::pair<std::string_view, std::size_t>{"0\r\n\r\n", 5},
           {"3\r\nabc\r\n0\r\n\r\nGET ", 13},
           {"A\r\n0123456789\r\n1\r\nx\r\n000\r\n\r\n", 28},
       }) {
    ChunkedBody whole;
    const auto result = whole.feed(bytes(text));
    ASSERT_TRUE(result.parsed()) << text << result.reason;
    EXPECT_EQ(result.used, size) << text;
    // And byte by byte.
    ChunkedBody slow;
    for (std::size_t i = 0; i < size; ++i) {
      const auto one = slow.feed(bytes(text.substr(i, 1)));
      EXPECT_EQ(one.parsed(), i + 1 == size) << text << i;
      EXPECT_FALSE(one.is_refused());
    }
  }
}

TEST(ChunkedBody, WhatServersReadInTwoWaysIsRefused) {
  for (const std::string_view text :
       {"\r\n", "x\r\n", "3;ext=1\r\nabc\r\n", "3 \r\nabc\r\n", " 3\r\nabc\r\n", "3\nabc\r\n",
        "3\r\nabcd\r\n", "3\r\nabc\n", "0x3\r\nabc\r\n", "+3\r\nabc\r\n", "-1\r\n", "3\r\nabc\r\r",
        "0\r\nTrailer: x\r\n\r\n", "0\r\n\r\r", "0\r\n\n", "1234567890123456\r\n", "3\r\rabc",
        "\r\n3\r\nabc"}) {
    ChunkedBody body;
    EXPECT_TRUE(body.feed(bytes(text)).is_refused()) << text;
  }
}

}  // namespace
}  // namespace carrel::http
