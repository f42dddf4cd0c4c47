#include "egress/publish.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "egress/io.h"
#include "egress/loop.h"
#include "egress/pump.h"

namespace carrel::egress {

namespace {

using protocol::LoopbackFamily;

constexpr int kBacklog = 128;
constexpr std::size_t kMostConnections = 256;
constexpr std::chrono::milliseconds kBreath{20};
constexpr std::chrono::seconds kConnectPatience{10};
constexpr std::chrono::seconds kFarewell{1};

class Publisher {
 public:
  Publisher(sandbox::Port port, UniqueFd listener, PublishEvents events)
      : port_(std::move(port)),
        events_(std::move(events)),
        listener_(loop_, std::move(listener)),
        guest_(loop_, UniqueFd(::fcntl(port_.fd(), F_DUPFD_CLOEXEC, 3))) {}

  Error run() {
    spawn(watch_guest());
    spawn(accept());
    const Status ran = loop_.run();
    return ran.ok() ? end_ : ran.error();
  }

 private:
  Task<void> accept() {
    while (!ending_) {
      if (clients_.size() >= kMostConnections) {
        co_await loop_.sleep(in(kBreath));
        continue;
      }
      UniqueFd client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (client.valid()) {
        spawn(serve(std::move(client)));
      } else if (errno == EAGAIN) {
        co_await listener_.readable();
      } else {
        co_await loop_.sleep(in(kBreath));
      }
    }
  }

  // The guest says nothing unless it was asked, and each answer is taken at once.
  Task<void> watch_guest() {
    char byte = 0;
    ssize_t n = -1;
    while (n < 0) {
      n = ::recv(guest_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR) {
        n = 0;
      }
      if (n < 0) {
        co_await guest_.readable();
      }
    }
    end(Error{Code::kGone, 0, "the sandbox ended", {}});
  }

  void end(Error why) {
    if (!ending_) {
      ending_ = true;
      end_ = std::move(why);
      spawn(wind_up());
    }
  }

  // Those who are still connected see the end, too.
  Task<void> wind_up() {
    co_await loop_.sleep(Clock::now());
    const Deadline latest = in(kFarewell);
    const std::vector<Watched*> clients(clients_.begin(), clients_.end());
    for (Watched* client : clients) {
      if (clients_.contains(client)) {
        client->shut();
      }
    }
    listener_.shut();
    guest_.shut();
    while (!clients_.empty() && Clock::now() < latest) {
      co_await loop_.sleep(in(std::chrono::milliseconds(1)));
    }
    loop_.stop();
  }

  Task<void> serve(UniqueFd fd) {
    Watched client(loop_, std::move(fd));
    clients_.insert(&client);
    Result<UniqueFd> inside = co_await reach();
    if (!inside.ok()) {
      client.reset_on_close();
      events_.refused(inside.error());
    } else {
      events_.connected();
      Watched server(loop_, std::move(inside.value()));
      co_await join(client, server);
    }
    clients_.erase(&client);
  }

  // 127.0.0.1, and where nobody listens there, ::1.
  Task<Result<UniqueFd>> reach() {
    Result<UniqueFd> four = co_await reach_by(LoopbackFamily::kFour);
    if (four.ok() || four.error().code != Code::kUnavailable) {
      co_return four;
    }
    Result<UniqueFd> six = co_await reach_by(LoopbackFamily::kSix);
    if (six.ok()) {
      co_return six;
    }
    co_return four;
  }

  Task<Result<UniqueFd>> reach_by(LoopbackFamily family) {
    Result<sandbox::Port::Begun> begun = port_.begin(family);
    if (!begun.ok()) {
      // CRITICAL: whatever it sends next is an answer to nothing.
      if (begun.error().code != Code::kUnavailable && begun.error().code != Code::kSystem) {
        end(begun.error());
      }
      co_return begun.error();
    }
    {
      Watched waited(loop_, UniqueFd(::fcntl(begun->socket.get(), F_DUPFD_CLOEXEC, 3)));
      const Deadline late = in(kConnectPatience);
      Woken woken = Woken::kLate;
      if (begun->awaited == sandbox::Port::Awaited::kRoom) {
        woken = co_await waited.writable(late);
      } else {
        woken = co_await waited.readable(late);
      }
      if (woken == Woken::kLate) {
        co_return Error{
            Code::kTimeout,
            0,
            "port " + std::to_string(port_.number()) + " in the sandbox takes no connection",
            {}};
      }
    }
    const Status connected = port_.finish(begun.value());
    if (!connected.ok()) {
      co_return connected.error();
    }
    co_return std::move(begun->socket);
  }

  Task<void> join(Watched& client, Watched& server) {
    Signal inward;
    spawn(signalled(carry(client, server), inward));
    co_await carry(server, client);
    co_await inward;
  }

  // One way; where it fails, the other way ends as well.
  static Task<void> carry(Watched& from, Watched& to) {
    const Spend everything = [](std::uint64_t) { return true; };
    const Patience patience;
    const bool ended = co_await pump(from, to, everything, patience, Carrying::kCopied);
    if (!ended) {
      from.reset_on_close();
      to.reset_on_close();
      from.shut();
      to.shut();
    }
  }

  Loop loop_;
  sandbox::Port port_;
  PublishEvents events_;
  Watched listener_;
  Watched guest_;
  std::set<Watched*> clients_;
  Error end_;
  bool ending_ = false;
};

}  // namespace

Result<UniqueFd> listen_at(const policy::IpAddress& address, std::uint16_t port) {
  const SocketAddress place = SocketAddress::of(address, port);
  CARREL_ASSIGN(UniqueFd socket, make_socket(address, SOCK_STREAM));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), place.get(), place.size) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return system_error("listen at " + address.text() + ", port " + std::to_string(port),
                        errno == EADDRINUSE ? "choose another --host-port, or none" : "");
  }
  return socket;
}

std::uint16_t port_of(int listener) {
  SocketAddress here;
  here.size = sizeof here.storage;
  return ::getsockname(listener, here.get(), &here.size) == 0 ? here.port() : std::uint16_t{0};
}

Error publish(sandbox::Port port, UniqueFd listener, PublishEvents events) {
  return Publisher(std::move(port), std::move(listener), std::move(events)).run();
}

}  // namespace carrel::egress
