#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/fields.h"

namespace carrel::http {

// What a server says, read strictly: a stranger wrote it, or somebody on the way did.

inline constexpr std::size_t kLargestHead = 64U << 10;

struct ResponseHead {
  int minor_version = 1;  // of HTTP/1
  int status = 0;
  std::vector<Header> headers;

  // The value of the only header of that name; null: there is none. Of several, the first.
  [[nodiscard]] const std::string* find(std::string_view name) const;
};

// Where the head of a response ends in `bytes`, after its empty line; nothing: not yet.
std::optional<std::size_t> end_of_head(std::string_view bytes);

// Everything up to there. Folded lines, bare CR or LF, control characters, spaces around names,
// and headers that frame the body in two ways are errors.
Result<ResponseHead> parse_head(std::string_view bytes);

enum class Method { kGet, kHead, kPost, kDelete };

// Takes the body out of the bytes that follow a head.
class BodyDecoder {
 public:
  using Sink = std::function<Status(std::string_view)>;

  static Result<BodyDecoder> after(const ResponseHead& head, Method method);

  // Gives the body in `bytes` to the sink; returns how many bytes were used. Less than all: the
  // body ended there.
  Result<std::size_t> feed(std::string_view bytes, const Sink& sink);
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  // The connection ended here.
  [[nodiscard]] Status close();
  // How long the body is, where that was said.
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  // Whether the body ends with the connection.
  [[nodiscard]] bool until_close() const { return state_ == State::kUntilClose; }

 private:
  enum class State { kLength, kUntilClose, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone };

  Result<std::size_t> take_line(std::string_view bytes);
  Status end_line();

  State state_ = State::kDone;
  std::uint64_t left_ = 0;  // of the body, or of this chunk
  std::optional<std::uint64_t> length_;
  std::string line_;
  std::size_t trailer_bytes_ = 0;
};

}  // namespace carrel::http
