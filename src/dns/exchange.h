#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "dns/message.h"
#include "dns/socket_address.h"

namespace carrel::dns {

enum class Transport { kUdp, kTcp };

// One lookup at one server, over a socket of its own that does not block. The socket is connected:
// the kernel drops datagrams of others, and gives it a port at random. A datagram that is no answer
// to this lookup is passed over, as somebody's attempt to be quicker; one that is, and cannot be
// used, ends the exchange.
class Exchange {
 public:
  enum class State { kWaiting, kAnswered, kFailed };

  Exchange(const SocketAddress& server, Lookup lookup, Transport transport);

  // Sends and receives what it can without waiting.
  State advance();
  // What to wait for before the next advance().
  [[nodiscard]] pollfd awaited() const;

  [[nodiscard]] const Lookup& lookup() const { return lookup_; }
  [[nodiscard]] Transport transport() const { return transport_; }
  [[nodiscard]] bool has_failed() const { return state_ == State::kFailed; }
  // Once it is answered.
  [[nodiscard]] const Answer& answer() const { return answer_; }
  // Once it has failed: an errno. EBADMSG: the server answered something that makes no sense.
  [[nodiscard]] int failure() const { return failure_; }

 private:
  void fail(int reason);
  void send_rest();
  void receive_datagrams();
  void receive_stream();
  [[nodiscard]] std::size_t wanted_bytes() const;

  Lookup lookup_;
  Transport transport_;
  State state_ = State::kWaiting;
  UniqueFd socket_;
  std::vector<std::uint8_t> sending_;
  std::size_t sent_ = 0;
  std::vector<std::uint8_t> received_;  // over TCP, with the size before it
  Answer answer_;
  int failure_ = 0;
};

}  // namespace carrel::dns
