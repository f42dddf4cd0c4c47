#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "egress/stream.h"

struct ssl_st;

namespace carrel::egress {

struct FreeSsl {
  void operator()(ssl_st* ssl) const;
};
// One TLS connection that has its settings and not begun.
using TlsSession = std::unique_ptr<ssl_st, FreeSsl>;

// TLS over a socket that does not block.
class TlsStream final : public Stream {
 public:
  // `already` was read from the socket before, and comes first.
  TlsStream(Watched& socket, TlsSession session, Bytes already = {});
  ~TlsStream() override;

  // Before anything else. As the session was set up for: asks or answers.
  Task<Status> shake_hands(Deadline deadline);

  // An end that the other side did not announce is -EPIPE: somebody may have cut it.
  Task<std::ptrdiff_t> read_some(std::span<std::uint8_t> buffer, Deadline deadline) override;
  Task<bool> write_whole(Bytes bytes, Deadline deadline) override;
  Task<void> end() override;

 private:
  // Sends what the session has made. Only whoever writes does that once hands are shaken.
  Task<bool> flush(Deadline deadline);
  // Feeds the session: a count as of read_some().
  Task<std::ptrdiff_t> fill(Deadline deadline);
  [[nodiscard]] Error failure() const;

  Watched* socket_;
  TlsSession session_;
};

}  // namespace carrel::egress
