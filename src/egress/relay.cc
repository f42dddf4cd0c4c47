#include "egress/relay.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "egress/io.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kPiece = 64U << 10;

Task<void> carry_out(Room& room, Watched& client, Watched& server, std::vector<std::uint8_t> first,
                     Carried& carried) {
  std::vector<std::uint8_t> buffer = std::move(first);
  std::size_t size = buffer.size();
  buffer.resize(std::max(size, kPiece));
  for (;;) {
    if (size > 0) {
      carried.out += size;
      if (!room.spend_out(size)) {
        break;
      }
      const bool sent = co_await write_whole(server, Bytes(buffer).first(size));
      if (!sent) {
        break;
      }
    }
    const auto n = co_await read_some(client, buffer);
    if (n < 0) {
      break;
    }
    if (n == 0) {
      ::shutdown(server.fd(), SHUT_WR);
      co_return;
    }
    size = static_cast<std::size_t>(n);
  }
  client.shut();
  server.shut();
}

Task<void> carry_in(Room& room, Watched& client, Watched& server, Carried& carried) {
  std::vector<std::uint8_t> buffer(kPiece);
  for (;;) {
    const auto n = co_await read_some(server, buffer);
    if (n < 0) {
      break;
    }
    if (n == 0) {
      ::shutdown(client.fd(), SHUT_WR);
      co_return;
    }
    carried.in += static_cast<std::uint64_t>(n);
    if (!room.spend_in(static_cast<std::uint64_t>(n))) {
      break;
    }
    const bool sent =
        co_await write_whole(client, Bytes(buffer).first(static_cast<std::size_t>(n)));
    if (!sent) {
      break;
    }
  }
  client.shut();
  server.shut();
}

}  // namespace

Task<void> relay(Room& room, Watched& client, Watched& server, std::vector<std::uint8_t> first,
                 Carried& carried) {
  Signal inward;
  spawn(signalled(carry_in(room, client, server, carried), inward));
  co_await carry_out(room, client, server, std::move(first), carried);
  co_await inward;
}

}  // namespace carrel::egress
