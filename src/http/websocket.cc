#include "http/websocket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/base64.h"
#include "base/utf8.h"
#include "http/tls.h"

namespace carrel::http {
namespace {

constexpr std::string_view kMagic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
constexpr std::chrono::seconds kWritePatience{30};
constexpr std::size_t kFramePiece = 16U << 10;
constexpr std::size_t kLongestControl = 125;

bool is_control(Opcode opcode) { return opcode >= Opcode::kClose; }

bool is_known(unsigned opcode) { return opcode <= 2 || (opcode >= 8 && opcode <= 10); }

// The only header of its name, or nothing.
std::string only(const RequestHead& head, std::string_view name) {
  const std::string* value = head.find(name);
  return value != nullptr && count_headers(head.headers, name) == 1 ? *value : std::string();
}

bool is_key(std::string_view key) {
  return key.size() == 24 && key.ends_with("==") &&
         std::all_of(key.begin(), key.end() - 2, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '/';
         });
}

void unmask(std::string& data, std::uint32_t mask) {
  std::array<unsigned char, 4> bytes{};
  std::memcpy(bytes.data(), &mask, sizeof mask);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<char>(static_cast<unsigned char>(data[i]) ^ bytes[i % 4]);
  }
}

bool is_close_code(unsigned code) {
  return (code >= 1000 && code <= 1011 && code != 1004 && code != 1005 && code != 1006) ||
         (code >= 3000 && code <= 4999);
}

}  // namespace

Parsed<FrameHead> parse_frame_head(Bytes bytes) {
  using Result = Parsed<FrameHead>;
  if (bytes.empty()) {
    return Result::need_more();
  }
  FrameHead head;
  head.last = (bytes[0] & 0x80U) != 0;
  const unsigned opcode = bytes[0] & 0x0fU;
  if ((bytes[0] & 0x70U) != 0 || !is_known(opcode)) {
    return Result::refused("a frame of an extension that was not agreed on");
  }
  head.opcode = static_cast<Opcode>(opcode);
  if (is_control(head.opcode) && !head.last) {
    return Result::refused("a control frame in pieces");
  }
  if (bytes.size() < 2) {
    return Result::need_more();
  }
  if ((bytes[1] & 0x80U) == 0) {
    return Result::refused("a frame without a mask");
  }
  const unsigned length = bytes[1] & 0x7fU;
  if (is_control(head.opcode) && length > kLongestControl) {
    return Result::refused("a control frame that is too long");
  }
  const std::size_t more = length == 127 ? 8 : length == 126 ? 2 : 0;
  if (bytes.size() < 2 + more + 4) {
    return Result::need_more();
  }
  head.size = more == 0 ? length : 0;
  for (std::size_t i = 0; i < more; ++i) {
    head.size = head.size << 8U | bytes[2 + i];
  }
  if ((more == 2 && head.size <= 125) || (more == 8 && head.size <= 0xffff) ||
      head.size >> 63U != 0) {
    return Result::refused("a length in more bytes than it needs, or no length at all");
  }
  std::memcpy(&head.mask, bytes.data() + 2 + more, 4);
  return Result::done(head, 2 + more + 4);
}

std::string write_frame(Opcode opcode, std::string_view data) {
  std::string frame;
  frame += static_cast<char>(0x80U | static_cast<unsigned>(opcode));
  const int more = data.size() > 0xffff ? 8 : data.size() > 125 ? 2 : 0;
  frame += static_cast<char>(more == 8 ? 127 : more == 2 ? 126 : static_cast<int>(data.size()));
  for (int i = more - 1; i >= 0; --i) {
    frame += static_cast<char>(data.size() >> (8 * i) & 0xff);
  }
  return frame.append(data);
}

Result<std::vector<Header>> accept_websocket(const RequestHead& head) {
  const std::string key = only(head, "sec-websocket-key");
  if (!head.upgrades || head.method != "GET" || head.body.kind != BodyFraming::Kind::kNone ||
      only(head, "sec-websocket-version") != "13" || !is_key(key)) {
    return Error{Code::kInvalid, 0, "this is not a request for a WebSocket", {}};
  }
  CARREL_TRY(prepare_tls());
  const std::string text = key + std::string(kMagic);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    return Error{Code::kSystem, 0, "cannot compute the answer to a WebSocket", {}};
  }
  return std::vector<Header>{
      {"upgrade", "websocket"},
      {"connection", "Upgrade"},
      {"sec-websocket-accept", base64({reinterpret_cast<const char*>(digest.data()), size})}};
}

Status WebSocket::fill(Deadline deadline) {
  const std::size_t had = buffer_.size();
  buffer_.resize(had + kFramePiece);
  auto got = stream_.read({buffer_.data() + had, kFramePiece}, deadline);
  buffer_.resize(had + (got.ok() ? got.value() : 0));
  if (!got.ok() && got.error().code == Code::kTimeout) {
    return got.error();
  }
  if (!got.ok() || got.value() == 0) {
    closed_ = true;
    return Error{Code::kGone, 0, "the client has left", {}};
  }
  return {};
}

Error WebSocket::refuse(std::uint16_t code, std::string_view why) {
  close(code, why);
  return Error{Code::kInvalid, 0, std::string(why), {}};
}

Result<WebSocket::Message> WebSocket::next(Deadline deadline) {
  for (;;) {
    if (closed_) {
      return Error{Code::kGone, 0, "the client has left", {}};
    }
    const auto head =
        parse_frame_head({reinterpret_cast<const std::uint8_t*>(buffer_.data()), buffer_.size()});
    if (head.is_refused()) {
      return refuse(kProtocolError, head.reason);
    }
    if (head.parsed() && head.value.size + message_.data.size() > kLargestMessage) {
      return refuse(kTooLarge, "the message is too large");
    }
    if (!head.parsed() || buffer_.size() < head.used + head.value.size) {
      CARREL_TRY(fill(deadline));
      continue;
    }
    std::string data = buffer_.substr(head.used, static_cast<std::size_t>(head.value.size));
    buffer_.erase(0, head.used + data.size());
    unmask(data, head.value.mask);
    CARREL_ASSIGN(const bool whole, take(head.value, std::move(data)));
    if (whole) {
      Message message = std::move(message_);
      message_ = Message();
      return message;
    }
  }
}

Result<bool> WebSocket::take(const FrameHead& head, std::string data) {
  if (is_control(head.opcode)) {
    return take_control(head.opcode, data);
  }
  if ((head.opcode == Opcode::kMore) != in_message_) {
    return refuse(kProtocolError, "a piece of no message, or a message in the middle of another");
  }
  if (!in_message_) {
    message_.kind = head.opcode == Opcode::kText ? Message::Kind::kText : Message::Kind::kBinary;
  }
  message_.data += data;
  in_message_ = !head.last;
  if (head.last && message_.kind == Message::Kind::kText && !valid_utf8(message_.data)) {
    return refuse(kNotUtf8, "the text is not UTF-8");
  }
  return head.last;
}

Result<bool> WebSocket::take_control(Opcode opcode, std::string_view data) {
  if (opcode == Opcode::kPing) {
    CARREL_TRY(stream_.write(write_frame(Opcode::kPong, data), Clock::now() + kWritePatience));
    return false;
  }
  if (opcode == Opcode::kPong) {
    return false;
  }
  const unsigned code = data.size() < 2 ? 0U
                                        : static_cast<unsigned char>(data[0]) * 256U +
                                              static_cast<unsigned char>(data[1]);
  if (data.size() == 1 ||
      (data.size() >= 2 && (!is_close_code(code) || !valid_utf8(data.substr(2))))) {
    return refuse(kProtocolError, "a goodbye that says nothing");
  }
  close(static_cast<std::uint16_t>(code == 0 ? kNormal : code), "");
  return Error{Code::kGone, 0, "the client has left", {}};
}

Status WebSocket::send(Message::Kind kind, std::string_view data) {
  return stream_.write(
      write_frame(kind == Message::Kind::kText ? Opcode::kText : Opcode::kBinary, data),
      Clock::now() + kWritePatience);
}

void WebSocket::close(std::uint16_t code, std::string_view reason) {
  if (closed_) {
    return;
  }
  closed_ = true;
  std::string data;
  data += static_cast<char>(code >> 8);
  data += static_cast<char>(code & 0xff);
  data += reason.substr(0, kLongestControl - 2);
  (void)stream_.write(write_frame(Opcode::kClose, data), Clock::now() + std::chrono::seconds(2));
}

}  // namespace carrel::http
