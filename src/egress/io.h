#pragma once

#include <sys/socket.h>

#include <coroutine>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/parsed.h"
#include "dns/socket_address.h"
#include "egress/loop.h"
#include "policy/address_class.h"

namespace carrel::egress {

// All of these are for sockets, and do not depend on how those were opened: whoever else holds one
// that was passed could have it block.
// How many bytes came; 0 at the end of the stream, and a negative errno otherwise.
Task<std::ptrdiff_t> read_some(Watched& from, std::span<std::uint8_t> buffer,
                               Deadline deadline = kNever);
// Whether all of it was taken.
Task<bool> write_whole(Watched& to, Bytes bytes, Deadline deadline = kNever);
inline Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

using dns::SocketAddress;

// A socket for that address that does not block.
Result<UniqueFd> make_socket(const policy::IpAddress& address, int type);
// 0 once it is connected, or a negative errno.
Task<int> connect_to(Watched& socket, SocketAddress address, Deadline deadline);

// Something that happens once, and that one coroutine can wait for.
class Signal {
 public:
  void set() {
    set_ = true;
    if (waiting_) {
      std::exchange(waiting_, nullptr).resume();
    }
  }
  [[nodiscard]] bool await_ready() const noexcept { return set_; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiting_ = handle; }
  void await_resume() const noexcept {}

 private:
  bool set_ = false;
  std::coroutine_handle<> waiting_;
};

// The task, and then the signal.
inline Task<void> signalled(Task<void> task, Signal& signal) {
  co_await task;
  signal.set();
}

}  // namespace carrel::egress
