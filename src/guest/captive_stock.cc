#include "guest/captive_stock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/network.h"

namespace carrel::guest {

namespace {

constexpr int kOriginalDestination = 80;  // SO_ORIGINAL_DST, and of IPv6

// The end of both is a reset: nothing of it stays in the network's tables.
void close_at_once(int fd) {
  struct linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

// Whether a connection to that address arrives at the listener.
template <typename Address>
bool arrives(int listener, int family, int level, const Address& there) {
  int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client < 0 ||
      connect(client, reinterpret_cast<const struct sockaddr*>(&there), sizeof there) != 0) {
    close(client);
    return false;
  }
  int server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  Address meant{};
  socklen_t size = sizeof meant;
  const bool same = server >= 0 &&
                    getsockopt(server, level, kOriginalDestination, &meant, &size) == 0 &&
                    memcmp(&meant, &there, sizeof meant) == 0;
  close_at_once(client);
  if (server >= 0) {
    close_at_once(server);
  }
  return same;
}

// CRITICAL: whoever serves such a network does not try this again.
bool connections_arrive(const CaptiveSockets& sockets) {
  static_assert(protocol::kTcpSocket == 0 && protocol::kTcpSocket6 == 1);
  struct sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(80);
  four.sin_addr.s_addr = htonl(0xa9fe'a9fe);  // 169.254.169.254
  if (!arrives(sockets.descriptors[0], AF_INET, IPPROTO_IP, four)) {
    return false;
  }
  if ((sockets.present & 1U << protocol::kTcpSocket6) == 0) {
    return true;
  }
  struct sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(80);
  six.sin6_addr.s6_addr[0] = 0x20;  // 2000::1
  six.sin6_addr.s6_addr[15] = 1;
  return arrives(sockets.descriptors[1], AF_INET6, IPPROTO_IPV6, six);
}

}  // namespace

void CaptiveStock::prepare(const protocol::Captive& captive) {
  Failure ignored;
  if (network_ >= 0 || captive.empty() || !make_network() || !make_captive(captive, ignored) ||
      sockets_.make() != 0) {
    return;
  }
  if (connections_arrive(sockets_)) {
    network_ = openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  }
  captive_ = captive;
  if (network_ < 0) {
    sockets_.close_all();
  }
}

int CaptiveStock::take(const protocol::Captive& captive, CaptiveSockets& sockets) {
  if (network_ < 0 || captive != captive_) {
    return -1;
  }
  int network = network_;
  network_ = -1;
  sockets = sockets_;
  sockets_ = {};
  return network;
}

void CaptiveStock::forget() {
  if (network_ >= 0) {
    close(network_);
    network_ = -1;
    sockets_.close_all();
  }
}

}  // namespace carrel::guest
