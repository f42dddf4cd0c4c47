#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/message.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// A TCP port inside a sandbox, and streams to it: the guest connects in the sandbox's own network
// and passes the socket, so the host never enters that network and none has to be allowed. Where
// the sandbox has a kernel of its own, none of its sockets can be passed: there another connection
// to the guest becomes the stream, and a process inside carries what comes. What the guest passes
// or says is hostile until it is checked.
class Port {
 public:
  // Another connection to the same guest, greeted.
  using Dial = std::function<Result<GuestStream>()>;
  // The guest at the other end was greeted, and the stream is for this alone.
  Port(GuestStream stream, std::uint16_t number, Dial dial)
      : stream_(std::move(stream)), number_(number), dial_(std::move(dial)) {}

  [[nodiscard]] std::uint16_t number() const { return number_; }
  // Something comes here unasked only when the sandbox ends.
  [[nodiscard]] int fd() const { return stream_.fd(); }

  // A stream to 127.0.0.1 or else ::1, non-blocking. kUnavailable: nobody listens there.
  Result<UniqueFd> connect(std::chrono::milliseconds patience);

  // The two halves of it, for whoever has more to do than to wait: a socket that is connected or
  // about to be, and what it is worth once what is awaited has come.
  enum class Awaited { kRoom, kAnswer };  // to write to it; to read from it
  struct Begun {
    UniqueFd socket;
    Awaited awaited = Awaited::kRoom;
  };
  Result<Begun> begin(protocol::LoopbackFamily family);
  [[nodiscard]] Status finish(const Begun& begun) const;

 private:
  [[nodiscard]] Error failed(int error) const;
  Result<UniqueFd> take_answer(std::uint32_t channel);
  Result<Begun> begin_relay(const std::string& request);
  Result<UniqueFd> connect_by(protocol::LoopbackFamily family,
                              std::chrono::steady_clock::time_point deadline);

  GuestStream stream_;
  std::uint16_t number_;
  Dial dial_;
  bool relayed_ = false;  // the guest has said that it can pass none
  std::uint32_t channel_ = 0;
};

}  // namespace carrel::sandbox
