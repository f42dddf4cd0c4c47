#include "http/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace carrel::http {
namespace {

Bytes head_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
Parsed<RequestHead> parse(std::string_view text) { return parse_request_head(head_bytes(text)); }

TEST(RequestHead, SaysWhatIsAskedOfWhom) {
  const std::string_view text =
      "POST /a/b?c=d HTTP/1.1\r\nHost: Example.ORG:8080\r\nX-A:  b \r\nContent-Length: "
      "5\r\n\r\nhello";
  const auto result = parse(text);
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_EQ(result.used, text.size() - 5);
  const RequestHead& head = result.value;
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.host.text(), "example.org");
  EXPECT_EQ(head.port, 8080);
  EXPECT_EQ(head.path, "/a/b");
  EXPECT_EQ(head.query, "?c=d");
  EXPECT_EQ(*head.find("x-a"), "b");
  EXPECT_EQ(head.body.kind, BodyFraming::Kind::kLength);
  EXPECT_EQ(head.body.length, 5U);
  EXPECT_TRUE(head.keeps_open);
}

TEST(RequestHead, HasFourForms) {
  const auto absolute = parse("GET HTTP://a.org:8080?q HTTP/1.1\r\nHost: a.org:8080\r\n\r\n");
  ASSERT_TRUE(absolute.parsed()) << absolute.reason;
  EXPECT_EQ(absolute.value.form, RequestHead::Form::kAbsolute);
  EXPECT_EQ(absolute.value.path, "/");
  EXPECT_EQ(absolute.value.query, "?q");
  EXPECT_EQ(absolute.value.port, 8080);
  EXPECT_TRUE(parse("GET http://a.org/x HTTP/1.1\r\nHost: a.org:80\r\n\r\n").parsed());
  EXPECT_TRUE(parse("GET http://a.org/x HTTP/1.0\r\n\r\n").parsed());
  const auto connect = parse("CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n");
  ASSERT_TRUE(connect.parsed()) << connect.reason;
  EXPECT_EQ(connect.value.form, RequestHead::Form::kAuthority);
  EXPECT_EQ(connect.value.port, 443);
  EXPECT_EQ(parse("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n\r\n").value.host.text(), "::1");
  EXPECT_EQ(parse("OPTIONS * HTTP/1.1\r\nHost: a.org\r\n\r\n").value.form,
            RequestHead::Form::kAsterisk);
}

TEST(RequestHead, ComesInAnyPieces) {
  const std::string text = "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n";
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_TRUE(parse(text.substr(0, size)).needs_more()) << size;
  }
}

TEST(RequestHead, WhatServersReadInTwoWaysIsRefused) {
  const std::string host = "Host: a.org\r\n";
  for (const std::string& text : std::vector<std::string>{
           // The line.
           "GET / HTTP/1.1\n" + host + "\r\n",
           "GET  / HTTP/1.1\r\n" + host + "\r\n",
           "GET / HTTP/1.1 \r\n" + host + "\r\n",
           "GET /a b HTTP/1.1\r\n" + host + "\r\n",
           "GET\t/ HTTP/1.1\r\n" + host + "\r\n",
           " GET / HTTP/1.1\r\n" + host + "\r\n",
           "\r\nGET / HTTP/1.1\r\n" + host + "\r\n",
           "GET /\r\n\r\n",
           "GET / HTTP/0.9\r\n" + host + "\r\n",
           "GET / HTTP/2.0\r\n" + host + "\r\n",
           "GET / http/1.1\r\n" + host + "\r\n",
           "G@T / HTTP/1.1\r\n" + host + "\r\n",
           "TRACE / HTTP/1.1\r\n" + host + "\r\n",
           "GET /#f HTTP/1.1\r\n" + host + "\r\n",
           "GET /\xc3\xbc HTTP/1.1\r\n" + host + "\r\n",
           "GET * HTTP/1.1\r\n" + host + "\r\n",
           "GET a.org/x HTTP/1.1\r\n" + host + "\r\n",
           "GET https://a.org/ HTTP/1.1\r\n" + host + "\r\n",
           "GET http://u@a.org/ HTTP/1.1\r\n" + host + "\r\n",
           "GET http:///x HTTP/1.1\r\n" + host + "\r\n",
           // The host.
           std::string("GET / HTTP/1.1\r\n\r\n"),
           std::string("GET / HTTP/1.0\r\n\r\n"),
           std::string("GET http://a.org/ HTTP/1.1\r\n\r\n"),
           "GET / HTTP/1.1\r\n" + host + host + "\r\n",
           "GET http://b.org/ HTTP/1.1\r\n" + host + "\r\n",
           "GET http://a.org:81/ HTTP/1.1\r\n" + host + "\r\n",
           std::string("GET / HTTP/1.1\r\nHost:\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org\tevil\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org, b.org\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org:\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org:0\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org:080\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org:99999\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org/x\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a.org@b.org\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost : a.org\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: [a.org]\r\n\r\n"),
           // The lines of the headers.
           "GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "X: a\r\n\tb\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "X: a\nY: b\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "X: a\rY: b\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + std::string("X: a\0\r\n\r\n", 9),
           "GET / HTTP/1.1\r\n" + host + "X a\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + ": a\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "X Y: a\r\n\r\n",
           // The body.
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 1\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host +
               "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host +
               "Transfer-Encoding: \x0b"
               "chunked\r\n\r\n",
           "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Connection: content-length\r\nContent-Length: 1\r\n\r\n",
           "GET / HTTP/1.1\r\n" + host + "Connection: close, Host\r\n\r\n",
           "POST / HTTP/1.1\r\n" + host + "Expect: 200-ok\r\n\r\n",
           // CONNECT.
           "CONNECT a.org HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT a.org:443@b.org:443 HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT a.org%00.b.org:443 HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT b.org:443 HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT a.org:443/ HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT /x HTTP/1.1\r\n" + host + "\r\n",
           "CONNECT a.org:443 HTTP/1.1\r\n" + host + "Content-Length: 1\r\n\r\n",
       }) {
    const auto result = parse(text);
    EXPECT_TRUE(result.is_refused()) << text;
    EXPECT_EQ(result.reason.empty(), !result.is_refused()) << text;
  }
}

TEST(RequestHead, TooMuchIsRefused) {
  std::string many = "GET / HTTP/1.1\r\nHost: a.org\r\n";
  for (int i = 0; i < 200; ++i) {
    many += "X: y\r\n";
  }
  EXPECT_TRUE(parse(many + "\r\n").is_refused());
  EXPECT_TRUE(parse("GET /" + std::string(kLargestRequestHead, 'a')).is_refused());
  EXPECT_TRUE(parse(std::string(40, 'A')).is_refused());
}

TEST(RequestHead, TellsWhetherTheConnectionGoesOn) {
  const auto head = [](std::string_view version, std::string_view headers) {
    return parse("GET / HTTP/" + std::string(version) + "\r\nHost: a.org\r\n" +
                 std::string(headers) + "\r\n")
        .value;
  };
  EXPECT_TRUE(head("1.1", "").keeps_open);
  EXPECT_FALSE(head("1.1", "Connection: x, Close\r\n").keeps_open);
  EXPECT_FALSE(head("1.0", "").keeps_open);
  EXPECT_TRUE(head("1.0", "Connection: keep-alive\r\n").keeps_open);
  EXPECT_TRUE(head("1.1", "Connection: Upgrade\r\nUpgrade: WebSocket\r\n").upgrades);
  EXPECT_FALSE(head("1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n").upgrades);
  EXPECT_FALSE(head("1.1", "Upgrade: websocket\r\n").upgrades);
  EXPECT_TRUE(head("1.1", "Expect: 100-continue\r\n").expects_continue);
}

TEST(RequestHead, IsWrittenAsItWasRead) {
  const std::string_view text =
      "GET http://A.org/x?y HTTP/1.1\r\nHost: a.ORG:80\r\nProxy-Authorization: secret\r\n"
      "Connection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\nUpgrade: h2c\r\nTE: trailers\r\n\r\n";
  const auto result = parse(text);
  ASSERT_TRUE(result.parsed()) << result.reason;
  const std::string written = write_request_head(result.value);
  EXPECT_EQ(written, "GET /x?y HTTP/1.1\r\nhost: a.org\r\nx-end: 2\r\n\r\n");
  const auto again = parse(written);
  ASSERT_TRUE(again.parsed());
  EXPECT_EQ(write_request_head(again.value), written);
  const auto old = parse("GET http://[::1]:81/ HTTP/1.0\r\n\r\n");
  EXPECT_EQ(write_request_head(old.value),
            "GET / HTTP/1.0\r\nhost: [::1]:81\r\nconnection: close\r\n\r\n");
  const auto socket =
      parse("GET / HTTP/1.1\r\nHost: a.org\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
  EXPECT_THAT(write_request_head(socket.value),
              testing::HasSubstr("connection: upgrade\r\nupgrade: websocket\r\n"));
}

TEST(ResponseHead, IsReadStrictlyToo) {
  const std::string_view text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  const auto result = parse_response_head(head_bytes(text));
  ASSERT_TRUE(result.parsed());
  EXPECT_EQ(result.value.status, 200);
  EXPECT_EQ(result.used, text.size() - 5);
  EXPECT_TRUE(parse_response_head(head_bytes("HTTP/1.1 200 OK\r\n")).needs_more());
  EXPECT_TRUE(parse_response_head(head_bytes("HTTP/1.1 200 OK\r\nA : b\r\n\r\n")).is_refused());
  EXPECT_TRUE(parse_response_head(head_bytes(std::string(70'000, 'a'))).is_refused());
}

}  // namespace
}  // namespace carrel::http
