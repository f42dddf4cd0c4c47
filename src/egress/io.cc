#include "egress/io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace carrel::egress {

Task<std::ptrdiff_t> read_some(Watched& from, std::span<std::uint8_t> buffer, Deadline deadline) {
  for (;;) {
    const ssize_t n = ::recv(from.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n >= 0) {
      // CRITICAL: a sender that is never late would keep everybody else waiting.
      if (from.has_had_its_turn()) {
        co_await from.loop().turn();
      }
      co_return n;
    }
    if (errno == EINTR) {
      continue;
    }
    if (errno != EAGAIN) {
      co_return -errno;
    }
    const Woken woken = co_await from.readable(deadline);
    if (woken == Woken::kLate) {
      co_return -ETIMEDOUT;
    }
  }
}

Task<bool> write_whole(Watched& to, Bytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) {
      continue;
    }
    if (errno != EAGAIN) {
      co_return false;
    }
    const Woken woken = co_await to.writable(deadline);
    if (woken == Woken::kLate) {
      co_return false;
    }
  }
  co_return true;
}

Result<UniqueFd> make_socket(const policy::IpAddress& address, int type) {
  UniqueFd fd(
      ::socket(address.is_v4() ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return system_error("open a socket");
  }
  if (type == SOCK_STREAM) {
    const int yes = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  return fd;
}

Task<int> connect_to(Watched& socket, SocketAddress address, Deadline deadline) {
  if (::connect(socket.fd(), address.get(), address.size) == 0) {
    co_return 0;
  }
  if (errno != EINPROGRESS && errno != EINTR) {
    co_return -errno;
  }
  for (;;) {
    const Woken woken = co_await socket.writable(deadline);
    if (woken == Woken::kLate) {
      co_return -ETIMEDOUT;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      co_return -error;
    }
    SocketAddress peer;
    peer.size = sizeof peer.storage;
    if (::getpeername(socket.fd(), peer.get(), &peer.size) == 0) {
      co_return 0;
    }
  }
}

}  // namespace carrel::egress
