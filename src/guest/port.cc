#include "guest/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/descriptors.h"
#include "guest/gvisor.h"
#include "protocol/message.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;

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

// A descriptor or a negative errno.
int begin(const protocol::Connect& wanted) {
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

}  // namespace

bool is_listening(std::uint16_t port) {
  for (const auto family : {protocol::LoopbackFamily::kFour, protocol::LoopbackFamily::kSix}) {
    int fd = begin({port, family});
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

bool hand_out_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                         std::string_view payload) {
  Client& connection = guest.clients[client];
  protocol::Connect wanted;
  // The answer goes out at once or never: nothing may be waiting before it.
  connection.flush();
  if (!protocol::parse_connect(payload, wanted) || connection.has_output()) {
    return false;
  }
  // Sockets of another kernel than the host's are its own: none can be given to the host.
  const bool away =
      kernel_of(guest.boot) == Kernel::kGvisors || (guest.boot.flags & protocol::kBootAway) != 0;
  int fd = away ? -EOPNOTSUPP : begin(wanted);
  unsigned char fields[4];
  protocol::Writer writer(fields);
  writer.u32(fd < 0 ? static_cast<std::uint32_t>(-fd) : 0);
  std::string_view answer(reinterpret_cast<const char*>(fields), sizeof fields);
  if (fd < 0) {
    return connection.send(channel, FrameType::kConnected, answer);
  }
  bool sent =
      send_with_descriptors(connection.fd(), {sizeof fields, channel, FrameType::kConnected},
                            answer, std::span<const int>(&fd, 1));
  close(fd);
  return sent;
}

}  // namespace carrel::guest
