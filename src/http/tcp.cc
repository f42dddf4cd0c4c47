#include "http/tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/files.h"
#include "base/unix_socket.h"
#include "dns/stub_resolver.h"

namespace carrel::http {

namespace {

constexpr std::size_t kMostAddresses = 8;

Error too_slow(const char* what) {
  return Error{Code::kTimeout, 0, std::string("the other side took too long to ") + what, {}};
}

// Whom to wait for: a socket, for one of `events`, and whoever gives up.
struct Awaited {
  int fd;
  short events;
  int cancel;
};

Status wait_for(const Awaited& awaited, Deadline deadline, const char* what) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return too_slow(what);
    }
    std::array<pollfd, 2> both{pollfd{awaited.fd, awaited.events, 0},
                               pollfd{awaited.cancel, POLLIN, 0}};
    const int ready =
        ::poll(both.data(), both.size(), static_cast<int>(std::min<long>(left.count(), 1 << 30)));
    if (ready > 0 && both[1].revents != 0) {
      return Error{Code::kGone, 0, "it was cancelled", {}};
    }
    if (ready > 0) {
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return system_error("wait for the network");
    }
  }
}

Result<UniqueFd> connect_to(const dns::SocketAddress& address, Deadline deadline, int cancel) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return system_error("make a socket");
  }
  const int on = 1;
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), address.get(), address.size) == 0) {
    return fd;
  }
  if (errno != EINPROGRESS && errno != EINTR) {
    return system_error("connect");
  }
  CARREL_TRY(wait_for({fd.get(), POLLOUT, cancel}, deadline, "accept the connection"));
  int failure = 0;
  socklen_t size = sizeof failure;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0 || failure != 0) {
    return system_error(failure, "connect");
  }
  return fd;
}

bool means_no_route(int reason) {
  return reason == ENETUNREACH || reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT;
}

// Why none of the addresses could be reached; `why` is what one of them said.
Error unreachable(const std::string& where, const std::vector<dns::Address>& tried, Error why) {
  const bool four =
      std::any_of(tried.begin(), tried.end(), [](const auto& a) { return a.ip.is_v4(); });
  const bool six =
      std::any_of(tried.begin(), tried.end(), [](const auto& a) { return !a.ip.is_v4(); });
  why.message = "reach " + where + ": " + why.message;
  if (means_no_route(why.error_number) && four != six) {
    why.hint = std::string("it has no address but of ") + (four ? "IPv4" : "IPv6") +
               ", and this host has no route there";
  }
  why.code = why.code == Code::kTimeout ? Code::kTimeout : Code::kUnavailable;
  return why;
}

// To whoever dials, a host that is not found is one that cannot be reached.
Result<std::vector<dns::Address>> addresses_of(const std::string& host,
                                               const DialPatience& patience) {
  auto found = dns::resolve(host, {.deadline = patience.all, .cancel = patience.cancel});
  if (found.ok()) {
    found->resize(std::min(found->size(), kMostAddresses));
  } else if (found.error().code == Code::kNotFound || found.error().code == Code::kInvalid) {
    found.error().code = Code::kUnavailable;
  }
  return found;
}

}  // namespace

Result<std::size_t> TcpStream::read(std::span<char> into, Deadline deadline) {
  for (;;) {
    const ssize_t size = ::recv(socket_.get(), into.data(), into.size(), 0);
    if (size >= 0) {
      return static_cast<std::size_t>(size);
    }
    if (errno == EAGAIN) {
      CARREL_TRY(wait_for({socket_.get(), POLLIN, cancel_}, deadline, "answer"));
    } else if (errno != EINTR) {
      Error error = system_error("read from the connection");
      error.code = Code::kUnavailable;
      return error;
    }
  }
}

Status TcpStream::write(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(size));
    } else if (errno == EAGAIN) {
      CARREL_TRY(wait_for({socket_.get(), POLLOUT, cancel_}, deadline, "take what was sent"));
    } else if (errno != EINTR) {
      Error error = system_error("write to the connection");
      error.code = Code::kUnavailable;
      return error;
    }
  }
  return {};
}

Result<std::unique_ptr<TcpStream>> dial(const std::string& host, std::uint16_t port,
                                        const DialPatience& patience) {
  CARREL_ASSIGN(const std::vector<dns::Address> addresses, addresses_of(host, patience));
  return dial_any(host, addresses, port, patience);
}

Result<std::unique_ptr<TcpStream>> dial_any(const std::string& host,
                                            const std::vector<dns::Address>& addresses,
                                            std::uint16_t port, const DialPatience& patience) {
  std::optional<Error> why;
  for (const dns::Address& address : addresses) {
    const Deadline one = Clock::now() + patience.each;
    auto socket = connect_to(dns::SocketAddress::of(address, port),
                             std::min(one, patience.all.value_or(one)), patience.cancel);
    if (socket.ok()) {
      return std::make_unique<TcpStream>(std::move(socket.value()), patience.cancel);
    }
    if (socket.error().code == Code::kGone) {
      return std::move(socket.error());
    }
    // That this host has no route says nothing about the other one, of which more is known.
    if (!why.has_value() || !means_no_route(socket.error().error_number)) {
      why = std::move(socket.error());
    }
    if (patience.all.has_value() && Clock::now() >= *patience.all) {
      break;
    }
  }
  return unreachable(host + ":" + std::to_string(port), addresses,
                     why.value_or(Error{Code::kUnavailable, 0, "there is no address", {}}));
}

Result<std::unique_ptr<TcpStream>> dial_unix(const std::string& path, Deadline deadline,
                                             int cancel) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  auto failed = [&](Error error) {
    error.code =
        error.code == Code::kTimeout || error.code == Code::kGone ? error.code : Code::kUnavailable;
    error.message = "reach " + path + ": " + error.message;
    return error;
  };
  // A path may be longer than an address.
  auto directory = open_at(AT_FDCWD, folder, O_PATH | O_DIRECTORY);
  if (!directory.ok()) {
    return failed(directory.error());
  }
  const sockaddr_un address = socket_address(directory.value().get(), path.substr(slash + 1));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return failed(system_error("make a socket"));
  }
  constexpr int kAgainMs = 20;
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    // Its queue is full, and nothing tells when it no longer is.
    if (errno != EAGAIN && errno != EINTR) {
      return failed(system_error("connect"));
    }
    if (Clock::now() >= deadline) {
      return failed(too_slow("accept the connection"));
    }
    pollfd given_up{cancel, POLLIN, 0};
    if (::poll(&given_up, 1, kAgainMs) > 0) {
      return failed(Error{Code::kGone, 0, "it was cancelled", {}});
    }
  }
  return std::make_unique<TcpStream>(std::move(socket), cancel);
}

}  // namespace carrel::http
