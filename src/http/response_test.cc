#include "http/response.h"

#include <gtest/gtest.h>

namespace carrel::http {
namespace {

struct Decoded {
  std::string body;
  std::size_t used = 0;
  bool ok = false;
  bool done = false;
};

// Decodes in pieces of `piece` bytes, as a network may deliver them.
Decoded decode(const std::string& head, std::string_view bytes, std::size_t piece,
               Method method = Method::kGet) {
  Decoded result;
  const auto parsed = parse_head(head);
  if (!parsed.ok()) {
    return result;
  }
  auto decoder = BodyDecoder::after(parsed.value(), method);
  if (!decoder.ok()) {
    return result;
  }
  result.ok = true;
  while (result.used < bytes.size() && !decoder.value().done()) {
    const auto used = decoder.value().feed(bytes.substr(result.used, piece),
                                           [&](std::string_view part) -> Status {
                                             result.body += part;
                                             return {};
                                           });
    if (!used.ok()) {
      result.ok = false;
      return result;
    }
    result.used += used.value();
  }
  result.done = decoder.value().done();
  result.ok = decoder.value().close().ok();
  return result;
}

const std::string kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(ResponseTest, HeadIsRead) {
  const auto head = parse_head("HTTP/1.1 404 Not Found\r\nX-A:  b c \r\nEmpty:\r\n\r\n");
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head.value().status, 404);
  ASSERT_NE(head.value().find("x-a"), nullptr);
  EXPECT_EQ(*head.value().find("x-a"), "b c");
  EXPECT_EQ(*head.value().find("empty"), "");
  EXPECT_EQ(head.value().find("missing"), nullptr);
  EXPECT_TRUE(parse_head("HTTP/1.0 200\r\n\r\n").ok());
  EXPECT_EQ(end_of_head("HTTP/1.1 200 OK\r\n"), std::nullopt);
  EXPECT_EQ(end_of_head("a\r\n\r\nb"), 5U);
}

TEST(ResponseTest, LooseHeadsAreRefused) {
  for (const char* text :
       {"", "\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1  200\r\n\r\n",
        "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 2000\r\n\r\n", "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\nA: b\n\r\n\r\n", "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n\r\n", "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_FALSE(parse_head(text).ok()) << text;
  }
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (std::size_t i = 0; i <= kMostHeaders; ++i) {
    many += "a: b\r\n";
  }
  EXPECT_FALSE(parse_head(many + "\r\n").ok());
  EXPECT_FALSE(
      parse_head("HTTP/1.1 200 OK\r\na: " + std::string(kLargestHead, 'x') + "\r\n\r\n").ok());
}

TEST(ResponseTest, LengthEndsTheBody) {
  const Decoded one = decode("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "helloNEXT", 3);
  EXPECT_TRUE(one.ok && one.done);
  EXPECT_EQ(one.body, "hello");
  EXPECT_EQ(one.used, 5U);
  EXPECT_FALSE(decode("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hell", 9).ok);
  for (const char* length : {"-1", "+1", "0x1", "1 1", "1,1", "", "99999999999999999999"}) {
    EXPECT_FALSE(
        decode("HTTP/1.1 200 OK\r\nContent-Length: " + std::string(length) + "\r\n\r\n", "x", 9).ok)
        << length;
  }
}

TEST(ResponseTest, ChunksAreJoined) {
  const std::string body = "5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\nNEXT";
  for (const std::size_t piece : {1U, 2U, 7U, 100U}) {
    const Decoded one = decode(kChunked, body, piece);
    EXPECT_TRUE(one.ok && one.done) << piece;
    EXPECT_EQ(one.body, "hello world");
    EXPECT_EQ(one.used, body.size() - 4);
  }
}

TEST(ResponseTest, LooseChunksAreRefused) {
  for (const char* body : {"5\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-5\r\nhello\r\n",
                           "x\r\n", "\r\n", "5\r\nhello\r\n", "5\r\nhello\r\n0\r\n",
                           "fffffffffffffffff\r\n", "5 5\r\nhello\r\n0\r\n\r\n"}) {
    EXPECT_FALSE(decode(kChunked, body, 100).ok) << body;
  }
  EXPECT_FALSE(decode(kChunked, std::string(5000, '1'), 100).ok);
  EXPECT_FALSE(
      decode("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "0\r\n\r\n", 9).ok);
  EXPECT_FALSE(decode("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n\r\n", 9).ok);
}

TEST(ResponseTest, SomeAnswersHaveNoBody) {
  EXPECT_EQ(decode("HTTP/1.1 204 x\r\n\r\n", "NEXT", 9).used, 0U);
  EXPECT_EQ(decode("HTTP/1.1 304 x\r\nContent-Length: 4\r\n\r\n", "NEXT", 9).used, 0U);
  EXPECT_EQ(decode("HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\n", "NEXT", 9, Method::kHead).used,
            0U);
}

TEST(ResponseTest, WithoutALengthTheConnectionEndsTheBody) {
  const Decoded one = decode("HTTP/1.1 200 OK\r\n\r\n", "all of it", 4);
  EXPECT_TRUE(one.ok);
  EXPECT_EQ(one.body, "all of it");
}

}  // namespace
}  // namespace carrel::http
