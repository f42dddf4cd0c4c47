#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parsed.h"
#include "base/result.h"
#include "http/fields.h"
#include "http/request_head.h"
#include "http/stream.h"

namespace carrel::http {

// The server's side of RFC 6455, strictly and without extensions.

enum class Opcode : std::uint8_t {
  kMore = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

struct FrameHead {
  bool last = false;  // of its message
  Opcode opcode = Opcode::kMore;
  std::uint64_t size = 0;
  std::uint32_t mask = 0;  // as it lies in memory
};

// The head of a client's frame. Refused are frames without a mask, reserved bits and opcodes,
// lengths in more bytes than they need, and control frames that are long or in pieces.
Parsed<FrameHead> parse_frame_head(Bytes bytes);

// A whole frame of the server's, which has no mask.
std::string write_frame(Opcode opcode, std::string_view data);

// The headers that answer a request for a WebSocket; kInvalid when it is none.
Result<std::vector<Header>> accept_websocket(const RequestHead& head);

// A connection that was upgraded. Not for several threads.
class WebSocket {
 public:
  static constexpr std::size_t kLargestMessage = 1U << 20;
  // Codes of RFC 6455 for the end.
  static constexpr std::uint16_t kNormal = 1000;
  static constexpr std::uint16_t kGoingAway = 1001;
  static constexpr std::uint16_t kProtocolError = 1002;
  static constexpr std::uint16_t kNotUtf8 = 1007;
  static constexpr std::uint16_t kTooLarge = 1009;
  static constexpr std::uint16_t kFailed = 1011;

  // `begun` is what came of it before the upgrade was answered.
  WebSocket(Stream& stream, std::string begun) : stream_(stream), buffer_(std::move(begun)) {}

  struct Message {
    enum class Kind { kText, kBinary };
    Kind kind = Kind::kText;
    std::string data;
  };
  // The next message. Pings are answered on the way. kTimeout: none yet. kGone: the client has
  // left, orderly or not. kInvalid: it broke the rules and was told so; there is no more to come.
  Result<Message> next(Deadline deadline);

  Status send(Message::Kind kind, std::string_view data);
  // Says goodbye, once; an answer is not waited for.
  void close(std::uint16_t code, std::string_view reason);

 private:
  Status fill(Deadline deadline);
  Error refuse(std::uint16_t code, std::string_view why);
  // What the frame means for the message; true when that is whole.
  Result<bool> take(const FrameHead& head, std::string data);
  Result<bool> take_control(Opcode opcode, std::string_view data);

  Stream& stream_;
  std::string buffer_;
  Message message_;
  bool in_message_ = false;
  bool closed_ = false;
};

}  // namespace carrel::http
