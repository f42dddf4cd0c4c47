#include "kernel/captive_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

namespace carrel::kernel {
namespace {

int tell(int protocol, const std::string& batch) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0 || ::send(fd, batch.data(), batch.size(), 0) < 0) {
    return -errno;
  }
  char answer[4096];
  const ssize_t n = ::recv(fd, answer, sizeof answer, 0);
  ::close(fd);
  nlmsghdr head{};
  nlmsgerr error{};
  if (n < static_cast<ssize_t>(sizeof head + sizeof error)) {
    return -EBADMSG;
  }
  std::memcpy(&error, answer + sizeof head, sizeof error);
  return error.error;
}

// Runs `check` in such a network; what it returns is 0 if all is well, or a number of its own.
void in_captivity(const std::function<int()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (::unshare(user | CLONE_NEWNET) != 0) {
      ::_exit(101);
    }
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (::ioctl(fd, SIOCSIFFLAGS, &request) != 0) {
      ::_exit(102);
    }
    const CaptiveNetwork network = captive_network();
    if (tell(NETLINK_ROUTE, network.routes) != 0) {
      ::_exit(103);
    }
    if (tell(NETLINK_ROUTE, network.routes6) != 0) {
      ::_exit(104);
    }
    if (const int error = tell(NETLINK_NETFILTER, network.rules); error != 0) {
      ::_exit(105);
    }
    ::_exit(check());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

sockaddr_in at(const char* address, std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &where.sin_addr);
  return where;
}

int bound(int type, std::uint16_t port) {
  const int fd = ::socket(AF_INET, type, 0);
  const sockaddr_in where = at("127.0.0.1", port);
  ::bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where);
  return fd;
}

int connect_to(int type, const char* address, std::uint16_t port) {
  const int fd = ::socket(AF_INET, type, 0);
  const sockaddr_in where = at(address, port);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 ? fd : -1;
}

TEST(CaptiveNetwork, ConnectionToTheWorldArrivesAtItsSocketWithItsDestination) {
  in_captivity([] {
    const int listener = bound(SOCK_STREAM, kCaptiveTcpPort);
    ::listen(listener, 4);
    if (connect_to(SOCK_STREAM, "93.184.216.34", 443) < 0) {
      return 1;
    }
    const int accepted = ::accept(listener, nullptr, nullptr);
    sockaddr_in meant{};
    socklen_t size = sizeof meant;
    if (::getsockopt(accepted, SOL_IP, SO_ORIGINAL_DST, &meant, &size) != 0) {
      return 2;
    }
    const sockaddr_in expected = at("93.184.216.34", 443);
    return meant.sin_addr.s_addr == expected.sin_addr.s_addr && meant.sin_port == expected.sin_port
               ? 0
               : 3;
  });
}

TEST(CaptiveNetwork, LookupSentAnywhereArrivesAtItsSocketAndIsAnswered) {
  in_captivity([] {
    const int server = bound(SOCK_DGRAM, kCaptiveDnsPort);
    const int client = connect_to(SOCK_DGRAM, "8.8.8.8", 53);
    if (::send(client, "q", 1, 0) != 1) {
      return 1;
    }
    char byte = 0;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    if (::recvfrom(server, &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &size) != 1 ||
        ::sendto(server, "a", 1, 0, reinterpret_cast<const sockaddr*>(&from), size) != 1) {
      return 2;
    }
    timeval second{1, 0};
    ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    return ::recv(client, &byte, 1, 0) == 1 && byte == 'a' ? 0 : 3;
  });
}

TEST(CaptiveNetwork, OtherDatagramsAreRefusedAtOnce) {
  in_captivity([] {
    const int client = connect_to(SOCK_DGRAM, "8.8.8.8", 443);
    if (client < 0) {
      return errno == EPERM || errno == EACCES ? 0 : 1;
    }
    return ::send(client, "q", 1, 0) < 0 && (errno == EPERM || errno == EACCES) ? 0 : 2;
  });
}

TEST(CaptiveNetwork, ConnectionsFailAtOnceWhileNobodyHoldsItsSockets) {
  in_captivity([] {
    return connect_to(SOCK_STREAM, "93.184.216.34", 443) < 0 && errno == ECONNREFUSED ? 0 : 1;
  });
}

TEST(CaptiveNetwork, ServersInsideAreReachedAsEver) {
  in_captivity([] {
    const int listener = bound(SOCK_STREAM, 8080);
    ::listen(listener, 4);
    return connect_to(SOCK_STREAM, "127.0.0.1", 8080) >= 0 ? 0 : 1;
  });
}

}  // namespace
}  // namespace carrel::kernel
