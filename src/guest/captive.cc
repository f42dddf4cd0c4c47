#include "guest/captive.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernel/captive_child.h"
#include "kernel/captive_ports.h"

namespace carrel::guest {

namespace {

constexpr int kBacklog = 512;

struct Kind {
  int family;
  int type;
  std::uint16_t port;  // 0: it is not bound
};

// In the order of NetworkSocket.
constexpr Kind kKinds[protocol::kNetworkSockets] = {
    {AF_INET, SOCK_STREAM, kernel::kCaptiveTcpPort},
    {AF_INET6, SOCK_STREAM, kernel::kCaptiveTcpPort},
    {AF_INET, SOCK_DGRAM, kernel::kCaptiveDnsPort},
    {AF_INET6, SOCK_DGRAM, kernel::kCaptiveDnsPort},
    {AF_INET, SOCK_STREAM, kernel::kCaptiveDnsPort},
    {AF_INET6, SOCK_STREAM, kernel::kCaptiveDnsPort},
    {AF_INET, SOCK_STREAM, kernel::kCaptiveProxyPort},
    {AF_INET, SOCK_DGRAM, 0},
    {AF_INET, SOCK_STREAM, 0},
};

// A descriptor or a negative errno.
int make_socket(const Kind& kind) {
  int fd = socket(kind.family, kind.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return -errno;
  }
  if (kind.port == 0) {
    return fd;
  }
  // Connections of an earlier holder may still be around. Two sockets for datagrams could be bound
  // to one port with this.
  int yes = 1;
  if (kind.type == SOCK_STREAM) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  }
  struct sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(kind.port);
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(kind.port);
  six.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  bool made = kind.family == AF_INET
                  ? bind(fd, reinterpret_cast<struct sockaddr*>(&four), sizeof four) == 0
                  : bind(fd, reinterpret_cast<struct sockaddr*>(&six), sizeof six) == 0;
  if (!made || (kind.type == SOCK_STREAM && listen(fd, kBacklog) != 0)) {
    int result = -errno;
    close(fd);
    return result;
  }
  return fd;
}

}  // namespace

int CaptiveSockets::make() {
  for (std::uint32_t i = 0; i < protocol::kNetworkSockets; ++i) {
    int fd = make_socket(kKinds[i]);
    if (fd >= 0) {
      descriptors[count++] = fd;
      present |= 1U << i;
    } else if ((protocol::kNeededSockets & 1U << i) != 0) {
      close_all();
      return fd;
    }
  }
  return 0;
}

void CaptiveSockets::close_all() {
  for (std::size_t i = 0; i < count; ++i) {
    close(descriptors[i]);
  }
  count = 0;
  present = 0;
}

bool is_captive() {
  constexpr std::uint32_t kNowhere = 0xc0000201;  // 192.0.2.1
  constexpr std::uint16_t kDiscard = 9;
  struct sockaddr_in nowhere{};
  nowhere.sin_family = AF_INET;
  nowhere.sin_port = htons(kDiscard);
  nowhere.sin_addr.s_addr = htonl(kNowhere);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  // There is a way to everywhere, and no datagram is let through on it.
  const bool routed =
      connect(fd, reinterpret_cast<struct sockaddr*>(&nowhere), sizeof nowhere) == 0;
  const bool refused = routed && send(fd, "carrel", 6, MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
  close(fd);
  return refused;
}

bool make_captive(const protocol::Captive& captive, Failure& failure) {
  if (captive.empty()) {
    return true;
  }
  if (int result = kernel::send_routes(captive.routes, captive.routes6); result != 0) {
    return failure.at("route", "the sandbox's network to itself", result);
  }
  int result = kernel::send_rules(captive.rules);
  return result == 0 || failure.at("load", "the rules of the sandbox's network (nftables)", result);
}

}  // namespace carrel::guest
