#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/eagerness.h"
#include "protocol/frame.h"

namespace carrel::sandbox {

// One frame from a guest. The payload is hostile: parse it with protocol/message.h.
struct GuestFrame {
  std::uint32_t channel = 0;
  protocol::FrameType type = protocol::FrameType::kHello;
  std::string payload;
};

// The host's end of the stream to a guest. Reading is bounded by kMaxGuestPayload; a frame that is
// malformed ends the stream with an error, and nothing of it is used.
class GuestStream {
 public:
  GuestStream() = default;
  explicit GuestStream(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }
  // Gives the connection away; what was read and not taken is lost.
  [[nodiscard]] UniqueFd release() { return std::move(fd_); }
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  // Sends a frame. Blocks only while the guest does not read, and never longer than the patience:
  // after that it is kTimeout, and the stream is of no use any more.
  Status send(std::uint32_t channel, protocol::FrameType type, std::string_view payload = {});

  // Reads what is there without blocking. kGone when the guest closed the stream.
  Status fill();
  // Reads what comes first, and waits for it, but not longer than that: then nothing was read.
  Status fill_until(std::chrono::steady_clock::time_point deadline);
  // The next whole frame, if there is one. False: more bytes are needed.
  Result<bool> next(GuestFrame& frame);

  // Greets a guest that listens and checks that it is the one meant.
  Status greet(const std::string& id, int timeout_ms);

  // Waits for the next frame; kTimeout after `timeout_ms`, kGone when the guest ended.
  Result<GuestFrame> wait(int timeout_ms);

 private:
  Result<bool> read_some(int flags);
  // Has a read that blocks end after a second.
  Status limit_reads();

  UniqueFd fd_;
  protocol::Eagerness eagerness_;
  bool unanswered_ = false;  // something was sent since it was last waited for a frame
  bool limited_ = false;     // see limit_reads
  std::chrono::milliseconds patience_{20'000};
  std::unique_ptr<char[]> piece_;  // what one read takes; not touched before it is needed
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace carrel::sandbox
