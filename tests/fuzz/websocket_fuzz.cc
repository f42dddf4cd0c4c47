// Frames of a WebSocket's client, in pieces: messages stay within their limit, texts are UTF-8, and
// after a refusal there is nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/utf8.h"
#include "http/websocket.h"
#include "tests/fuzz/pieces.h"

namespace {

using carrel::fuzz::require;
namespace http = carrel::http;

class Pieces final : public http::Stream {
 public:
  Pieces(const std::uint8_t* data, std::size_t size, std::size_t piece)
      : data_(data), size_(size), piece_(piece) {}
  carrel::Result<std::size_t> read(std::span<char> into, http::Deadline) override {
    const std::size_t size = std::min({into.size(), size_ - at_, piece_});
    std::memcpy(into.data(), data_ + at_, size);
    at_ += size;
    return size;
  }
  carrel::Status write(std::string_view, http::Deadline) override { return {}; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t piece_;
  std::size_t at_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  (void)carrel::fuzz::parse_in_pieces(carrel::Bytes(data, size), http::parse_frame_head);
  Pieces pieces(data + 1, size - 1, 1 + data[0]);
  http::WebSocket socket(pieces, "");
  for (;;) {
    auto message = socket.next(http::Clock::now());
    if (!message.ok()) {
      break;
    }
    require(message->data.size() <= http::WebSocket::kLargestMessage);
    require(message->kind == http::WebSocket::Message::Kind::kBinary ||
            carrel::valid_utf8(message->data));
  }
  require(!socket.next(http::Clock::now()).ok());
  return 0;
}
