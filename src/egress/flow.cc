#include "egress/flow.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "egress/dns_service.h"
#include "egress/passage.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::milliseconds kBreath{50};

Task<void> serve(std::shared_ptr<Room> room, UniqueFd client, Entrance entrance) {
  if (entrance == Entrance::kDns) {
    co_await serve_dns_stream(std::move(room), std::move(client));
    co_return;
  }
  Passage passage(std::move(room), std::move(client));
  if (entrance == Entrance::kProxy) {
    co_await passage.serve_proxied();
  } else {
    co_await passage.serve_redirected();
  }
}

}  // namespace

Task<void> accept_flows(std::shared_ptr<Room> room, std::shared_ptr<Watched> listener,
                        Entrance entrance) {
  while (!room->closed()) {
    UniqueFd client(::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) {
      spawn(serve(room, std::move(client), entrance));
      if (listener->has_had_its_turn()) {
        co_await room->service().loop.turn();
      }
      continue;
    }
    if (errno == EAGAIN) {
      co_await listener->readable();
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // Others are to have what there is; the connection waits for its turn.
      co_await room->service().loop.sleep(in(kBreath));
    } else if (errno != EINTR && errno != ECONNABORTED) {
      break;
    }
  }
}

}  // namespace carrel::egress
