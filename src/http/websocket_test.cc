#include "http/websocket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace carrel::http {
namespace {

using testing::StartsWith;

// What a client says, and what it heard.
class Script final : public Stream {
 public:
  Result<std::size_t> read(std::span<char> into, Deadline) override {
    const std::size_t size = std::min(into.size(), said.size());
    if (size == 0) {
      return ended ? Result<std::size_t>(std::size_t{0})
                   : Result<std::size_t>(Error{Code::kTimeout, 0, "nothing yet", {}});
    }
    std::memcpy(into.data(), said.data(), size);
    said.erase(0, size);
    return size;
  }
  Status write(std::string_view bytes, Deadline) override {
    heard += bytes;
    return {};
  }
  std::string said;
  std::string heard;
  bool ended = false;
};

std::string client_frame(unsigned first, std::string_view data) {
  std::string frame;
  frame += static_cast<char>(first);
  if (data.size() > 125) {
    frame += static_cast<char>(0x80 | 126);
    frame += static_cast<char>(data.size() >> 8);
    frame += static_cast<char>(data.size() & 0xff);
  } else {
    frame += static_cast<char>(0x80 | data.size());
  }
  constexpr std::string_view kMask = "\x01\x02\x03\x04";
  frame += kMask;
  for (std::size_t i = 0; i < data.size(); ++i) {
    frame += static_cast<char>(data[i] ^ kMask[i % 4]);
  }
  return frame;
}

unsigned close_code(const std::string& heard) {
  return heard.size() >= 4 && heard[0] == '\x88'
             ? static_cast<unsigned char>(heard[2]) * 256U + static_cast<unsigned char>(heard[3])
             : 0U;
}

// The code with which such a client is sent away.
unsigned sent_away(const std::string& said) {
  Script script;
  script.said = said;
  WebSocket socket(script, "");
  EXPECT_FALSE(socket.next(Clock::now()).ok());
  return close_code(script.heard);
}

TEST(WebSocket, KeyIsAnsweredAsTheStandardSays) {
  const std::string text =
      "GET /x HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
      "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  auto head = parse_request_head({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  ASSERT_TRUE(head.parsed());
  auto headers = accept_websocket(head.value);
  ASSERT_TRUE(headers.ok());
  EXPECT_EQ(headers->back().value, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  head.value.headers.push_back({"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="});
  EXPECT_FALSE(accept_websocket(head.value).ok());
}

TEST(WebSocket, MessagesInPiecesArePutTogetherAndPingsAnswered) {
  Script script;
  script.said = client_frame(0x01, "he") + client_frame(0x89, "ping") + client_frame(0x80, "llo") +
                client_frame(0x82, std::string(300, 'x'));
  WebSocket socket(script, "");
  auto first = socket.next(Clock::now());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->data, "hello");
  EXPECT_EQ(script.heard, "\x8a\x04ping");
  auto second = socket.next(Clock::now());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->kind, WebSocket::Message::Kind::kBinary);
  EXPECT_EQ(second->data.size(), 300U);
  EXPECT_EQ(socket.next(Clock::now()).error().code, Code::kTimeout);
}

// J11
TEST(WebSocket, WhoBreaksTheRulesIsSentAwayWithTheRightCode) {
  EXPECT_EQ(sent_away(std::string("\x81\x02hi", 4)), WebSocket::kProtocolError);  // no mask
  EXPECT_EQ(sent_away(client_frame(0xc1, "x")), WebSocket::kProtocolError);       // reserved bit
  EXPECT_EQ(sent_away(client_frame(0x83, "x")), WebSocket::kProtocolError);       // reserved opcode
  EXPECT_EQ(sent_away(client_frame(0x09, "x")), WebSocket::kProtocolError);       // ping in pieces
  EXPECT_EQ(sent_away(client_frame(0x89, std::string(126, 'x'))), WebSocket::kProtocolError);
  EXPECT_EQ(sent_away(client_frame(0x80, "x")), WebSocket::kProtocolError);  // a piece of nothing
  EXPECT_EQ(sent_away(client_frame(0x01, "x") + client_frame(0x81, "y")),
            WebSocket::kProtocolError);
  EXPECT_EQ(sent_away(client_frame(0x81, "\xff")), WebSocket::kNotUtf8);
  EXPECT_EQ(sent_away(std::string("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"
                                  "1234",
                                  14)),
            WebSocket::kTooLarge);
  EXPECT_EQ(sent_away(std::string("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                  "1234",
                                  14)),
            WebSocket::kProtocolError);
  EXPECT_EQ(sent_away(client_frame(0x88, "x")), WebSocket::kProtocolError);
  EXPECT_EQ(sent_away(client_frame(0x88, std::string("\x03\xee", 2))), WebSocket::kProtocolError);
}

// J11
TEST(WebSocket, PiecesTogetherAreNotLargerThanAMessageMayBe) {
  std::string said = client_frame(0x02, std::string(60'000, 'x'));
  for (int i = 0; i < 20; ++i) {
    said += client_frame(0x00, std::string(60'000, 'x'));
  }
  EXPECT_EQ(sent_away(said), WebSocket::kTooLarge);
}

TEST(WebSocket, GoodbyeIsReturnedOnce) {
  Script script;
  script.said = client_frame(0x88, std::string("\x03\xe8", 2) + "bye");
  WebSocket socket(script, "");
  EXPECT_EQ(socket.next(Clock::now()).error().code, Code::kGone);
  EXPECT_EQ(close_code(script.heard), WebSocket::kNormal);
  const std::string heard = script.heard;
  socket.close(WebSocket::kFailed, "again");
  EXPECT_EQ(script.heard, heard);
}

}  // namespace
}  // namespace carrel::http
