#pragma once

#include <chrono>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/message.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// What whoever wants a port of a sandbox behind such walls is told.
Error no_connections();

// A TCP port inside a sandbox, and streams to it: the guest connects in the sandbox's own network
// and passes the socket, so the host never enters that network and none has to be allowed. What the
// guest passes is hostile until it is checked.
class Port {
 public:
  // The guest at the other end was greeted, and the stream is for this alone.
  Port(GuestStream stream, std::uint16_t number) : stream_(std::move(stream)), number_(number) {}

  [[nodiscard]] std::uint16_t number() const { return number_; }
  // Something comes here unasked only when the sandbox ends.
  [[nodiscard]] int fd() const { return stream_.fd(); }

  // A stream to 127.0.0.1 or else ::1, non-blocking. kUnavailable: nobody listens there.
  Result<UniqueFd> connect(std::chrono::milliseconds patience);

  // The two halves of it, for whoever has more to do than to wait: a socket that is connected or
  // about to be, and what it is worth once it can be written to.
  Result<UniqueFd> begin(protocol::LoopbackFamily family);
  [[nodiscard]] Status finish(int socket) const;

 private:
  [[nodiscard]] Error failed(int error) const;
  Result<UniqueFd> take_answer(std::uint32_t channel);
  Result<UniqueFd> connect_by(protocol::LoopbackFamily family,
                              std::chrono::steady_clock::time_point deadline);

  GuestStream stream_;
  std::uint16_t number_;
  std::uint32_t channel_ = 0;
};

}  // namespace carrel::sandbox
