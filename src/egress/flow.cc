#include "egress/flow.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unix_socket.h"
#include "egress/dns_service.h"
#include "egress/passage.h"
#include "kernel/network_cookie.h"
#include "protocol/outward.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::milliseconds kBreath{50};
constexpr std::chrono::seconds kBooting{90};

using protocol::Outward;
using protocol::OutwardKind;

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

SocketAddress address_of(const Outward& outward) {
  policy::IpAddress::V4 four{};
  policy::IpAddress::V6 six{};
  std::copy_n(outward.address, four.size(), four.begin());
  std::copy_n(outward.address, six.size(), six.begin());
  return SocketAddress::of(
      outward.version == 4 ? policy::IpAddress::from(four) : policy::IpAddress::from(six),
      outward.port);
}

Task<void> serve_outward(std::shared_ptr<Room> room, UniqueFd client, Outward outward) {
  if (outward.kind == OutwardKind::kLookups) {
    co_await serve_dns_carried(std::move(room), std::move(client));
    co_return;
  }
  if (outward.kind != OutwardKind::kRedirected) {
    const Entrance entrance =
        outward.kind == OutwardKind::kProxy ? Entrance::kProxy : Entrance::kDns;
    co_await serve(std::move(room), std::move(client), entrance);
    co_return;
  }
  Passage passage(std::move(room), std::move(client));
  const SocketAddress meant = address_of(outward);
  co_await passage.serve_meant(meant);
}

// What a porter says, with what comes beside it.
struct PorterWord {
  enum class Kind { kEnd, kNothing, kReady, kConnection } kind = Kind::kEnd;
  Outward outward;
  UniqueFd connection;
};

bool is_local_stream(int fd) {
  return kernel::socket_option<int>(fd, SO_DOMAIN) == AF_UNIX &&
         kernel::socket_option<int>(fd, SO_TYPE) == SOCK_STREAM;
}

PorterWord hear_porter(int porter) {
  std::array<char, 64> buffer{};
  std::vector<UniqueFd> descriptors;
  const ssize_t n = receive_with(porter, buffer, descriptors, MSG_DONTWAIT);
  PorterWord word;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    word.kind = PorterWord::Kind::kNothing;
    return word;
  }
  const std::string_view text(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  if (text == protocol::kOutwardReady && descriptors.empty()) {
    word.kind = PorterWord::Kind::kReady;
  } else if (parse_outward(text, word.outward) && descriptors.size() == 1 &&
             is_local_stream(descriptors[0].get())) {
    word.kind = PorterWord::Kind::kConnection;
    word.connection = std::move(descriptors[0]);
    ::fcntl(word.connection.get(), F_SETFL, O_NONBLOCK);
  }
  return word;
}

}  // namespace

Task<Status> await_machine(Watched& porter) {
  const Deadline deadline = in(kBooting);
  for (;;) {
    const PorterWord word = hear_porter(porter.fd());
    if (word.kind == PorterWord::Kind::kReady) {
      co_return Status();
    }
    Woken woken = Woken::kLate;
    if (word.kind == PorterWord::Kind::kNothing) {
      woken = co_await porter.readable(deadline);
    }
    if (woken == Woken::kLate) {
      co_return Error{Code::kUnavailable, 0, "the machine has no network", {}};
    }
  }
}

Task<void> take_flows(std::shared_ptr<Room> room, std::shared_ptr<Watched> porter) {
  while (!room->closed()) {
    PorterWord word = hear_porter(porter->fd());
    if (word.kind == PorterWord::Kind::kEnd) {
      co_return;
    }
    if (word.kind == PorterWord::Kind::kConnection) {
      spawn(serve_outward(room, std::move(word.connection), word.outward));
    }
    if (word.kind == PorterWord::Kind::kNothing) {
      co_await porter->readable();
    } else if (porter->has_had_its_turn()) {
      co_await room->service().loop.turn();
    }
  }
}

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
