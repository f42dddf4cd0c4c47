#include "guest/loopback.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace carrel::guest {

namespace {

int begin_four(int fd, std::uint16_t port) {
  struct sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address);
}

int begin_six(int fd, std::uint16_t port) {
  struct sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  return connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address);
}

}  // namespace

int begin_connection(const protocol::Connect& wanted) {
  bool four = wanted.family == protocol::LoopbackFamily::kFour;
  int fd = socket(four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return -errno;
  }
  int begun = four ? begin_four(fd, wanted.port) : begin_six(fd, wanted.port);
  if (begun != 0 && errno != EINPROGRESS) {
    int result = -errno;
    close(fd);
    return result;
  }
  return fd;
}

bool is_listening(std::uint16_t port) {
  for (const auto family : {protocol::LoopbackFamily::kFour, protocol::LoopbackFamily::kSix}) {
    int fd = begin_connection({port, family});
    if (fd < 0) {
      continue;
    }
    // On a loopback the answer is there at once, if there is one.
    struct pollfd look{fd, POLLOUT, 0};
    const bool open = poll(&look, 1, 0) == 1 && (look.revents & (POLLERR | POLLHUP)) == 0;
    close(fd);
    if (open) {
      return true;
    }
  }
  return false;
}

}  // namespace carrel::guest
