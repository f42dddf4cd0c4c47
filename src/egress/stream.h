#pragma once

#include <sys/socket.h>

#include <span>

#include "egress/io.h"

namespace carrel::egress {

// One side of a connection as those who read requests and answers see it: the bytes themselves, or
// what TLS that ends here has in it. At most one coroutine reads, and one writes.
class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // As the functions of io.h.
  virtual Task<std::ptrdiff_t> read_some(std::span<std::uint8_t> buffer, Deadline deadline) = 0;
  virtual Task<bool> write_whole(Bytes bytes, Deadline deadline) = 0;
  // Nothing more is written, and the other side is told so.
  virtual Task<void> end() = 0;
};

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Watched& socket) : socket_(&socket) {}

  Task<std::ptrdiff_t> read_some(std::span<std::uint8_t> buffer, Deadline deadline) override {
    return egress::read_some(*socket_, buffer, deadline);
  }
  Task<bool> write_whole(Bytes bytes, Deadline deadline) override {
    return egress::write_whole(*socket_, bytes, deadline);
  }
  Task<void> end() override {
    ::shutdown(socket_->fd(), SHUT_WR);
    co_return;
  }

 private:
  Watched* socket_;
};

}  // namespace carrel::egress
