#include "http/chunked_body.h"

#include <algorithm>

namespace carrel::http {
namespace {

constexpr int kMostDigits = 15;

int hex_value(std::uint8_t byte) {
  if (byte >= '0' && byte <= '9') {
    return byte - '0';
  }
  if (byte >= 'a' && byte <= 'f') {
    return byte - 'a' + 10;
  }
  return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

}  // namespace

// One byte outside of the data; returns why it is refused, or nothing.
std::string_view ChunkedBody::step(std::uint8_t byte) {
  const auto expect = [&](std::uint8_t wanted, State next, std::string_view reason) {
    state_ = next;
    return byte == wanted ? std::string_view() : reason;
  };
  switch (state_) {
    case State::kSize:
      if (const int digit = hex_value(byte); digit >= 0 && digits_ < kMostDigits) {
        left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
        ++digits_;
        return {};
      }
      return expect('\r', State::kSizeEnd,
                    "the size of a chunk is not a short hexadecimal number alone");
    case State::kSizeEnd:
      if (digits_ == 0) {
        return "a chunk has no size";
      }
      digits_ = 0;
      return expect('\n', left_ == 0 ? State::kLast : State::kData,
                    "the line of a chunk's size does not end in CR LF");
    case State::kDataEnd:
      return expect('\r', State::kDataLineEnd, "a chunk is longer than it said");
    case State::kDataLineEnd:
      return expect('\n', State::kSize, "a chunk does not end in CR LF");
    case State::kLast:
      return expect('\r', State::kLastEnd, "the body has a trailer");
    case State::kLastEnd:
      return expect('\n', State::kDone, "the body does not end in CR LF");
    case State::kData:
    case State::kDone:
      break;
  }
  return "the body has ended";
}

Parsed<std::size_t> ChunkedBody::feed(Bytes bytes, const Sink& sink) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const auto size =
          static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size() - used));
      if (sink) {
        sink(bytes.subspan(used, size));
      }
      used += size;
      left_ -= size;
      state_ = left_ == 0 ? State::kDataEnd : State::kData;
      continue;
    }
    if (const std::string_view reason = step(bytes[used]); !reason.empty()) {
      return Parsed<std::size_t>::refused(reason);
    }
    ++used;
  }
  return state_ == State::kDone ? Parsed<std::size_t>::done(used, used)
                                : Parsed<std::size_t>::need_more();
}

}  // namespace carrel::http
