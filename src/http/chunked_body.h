#pragma once

#include <cstdint>
#include <functional>

#include "base/parsed.h"

namespace carrel::http {

// Finds the end of a chunked request body. Refused are extensions, trailers, spaces and sizes of
// more than 15 digits, which some servers read in another way.
class ChunkedBody {
 public:
  // Gets what is in the chunks.
  using Sink = std::function<void(Bytes)>;

  // How many of the bytes belong to the body; needs_more: all of them, and it goes on.
  Parsed<std::size_t> feed(Bytes bytes, const Sink& sink = {});

 private:
  enum class State { kSize, kSizeEnd, kData, kDataEnd, kDataLineEnd, kLast, kLastEnd, kDone };
  std::string_view step(std::uint8_t byte);

  State state_ = State::kSize;
  std::uint64_t left_ = 0;
  int digits_ = 0;
};

}  // namespace carrel::http
