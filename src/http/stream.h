#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"

namespace carrel::http {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// A connection that bytes go through in both directions, by a deadline for each call.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // At least one byte; 0: the other side has ended it.
  virtual Result<std::size_t> read(std::span<char> into, Deadline deadline) = 0;
  // All of it.
  virtual Status write(std::string_view bytes, Deadline deadline) = 0;
  // Whether there is something to read that its descriptor does not tell of.
  [[nodiscard]] virtual bool has_pending() const { return false; }
};

}  // namespace carrel::http
