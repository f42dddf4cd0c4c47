// A client of the server, in pieces: whatever it sends, each request is read or refused, bodies
// stay within their limits, and after a refusal there is no next request.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "http/server_connection.h"
#include "tests/fuzz/pieces.h"

namespace {

using carrel::fuzz::require;
namespace http = carrel::http;

constexpr std::size_t kMostBody = 4096;

// Gives the bytes in pieces of one size, and takes everything.
class Bytes final : public http::Stream {
 public:
  Bytes(const std::uint8_t* data, std::size_t size, std::size_t piece)
      : data_(data), size_(size), piece_(piece) {}

  carrel::Result<std::size_t> read(std::span<char> into, http::Deadline) override {
    const std::size_t size = std::min({into.size(), size_ - at_, piece_});
    std::memcpy(into.data(), data_ + at_, size);
    at_ += size;
    return size;
  }
  carrel::Status write(std::string_view bytes, http::Deadline) override {
    written_ += bytes;
    return {};
  }
  [[nodiscard]] const std::string& written() const { return written_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t piece_;
  std::size_t at_ = 0;
  std::string written_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  Bytes stream(data + 2, size - 2, 1 + data[0]);
  http::ServerConnection connection(stream, {});
  for (int requests = 0; requests < 64 && connection.keeps_open(); ++requests) {
    if (!connection.next().ok()) {
      (void)connection.answer_and_close({400, {}, "refused"});
      require(!connection.keeps_open());
      break;
    }
    if ((data[1] >> (requests % 8) & 1) != 0) {
      auto body = connection.whole_body(kMostBody);
      require(!body.ok() || body.value().size() <= kMostBody);
    }
    require(connection.answer({200, {{"x", connection.head().path}}, "done"}).ok());
  }
  require(stream.written().find("\nx: \r") == std::string::npos);
  return 0;
}
