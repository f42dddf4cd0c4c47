#pragma once

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

// What makes the network namespace of this process a captive one: see captive_network.h. No heap
// and no lock: it also serves children between fork and exec, and the guest. Results are 0 or a
// negative errno.
namespace carrel::kernel {

// Sends the messages and reads the first answer: 0 or a negative errno.
inline int tell_kernel(int protocol, std::string_view messages) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) {
    return -errno;
  }
  int result = 0;
  char answer[1024];
  ssize_t n = -1;
  if (send(fd, messages.data(), messages.size(), 0) != static_cast<ssize_t>(messages.size()) ||
      (n = recv(fd, answer, sizeof answer, 0)) < 0) {
    result = -errno;
  } else {
    struct nlmsghdr head{};
    struct nlmsgerr error{};
    if (n < static_cast<ssize_t>(sizeof head + sizeof error)) {
      result = -EBADMSG;
    } else {
      memcpy(&head, answer, sizeof head);
      memcpy(&error, answer + sizeof head, sizeof error);
      result = head.nlmsg_type == NLMSG_ERROR ? error.error : -EBADMSG;
    }
  }
  close(fd);
  return result;
}

inline bool has_ipv6() {
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  bool has =
      fd >= 0 && bind(fd, reinterpret_cast<struct sockaddr*>(&loopback), sizeof loopback) == 0;
  if (fd >= 0) {
    close(fd);
  }
  return has;
}

inline int send_routes(std::string_view routes, std::string_view routes6) {
  const int result = tell_kernel(NETLINK_ROUTE, routes);
  return result == 0 && has_ipv6() ? tell_kernel(NETLINK_ROUTE, routes6) : result;
}

// CRITICAL: without them connections would go nowhere, but datagrams would not be refused.
inline int send_rules(std::string_view rules) { return tell_kernel(NETLINK_NETFILTER, rules); }

}  // namespace carrel::kernel
