// The captive network of a sandbox in a machine, served from the host over the trunk.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/maker.h"
#include "guest/runtime.h"
#include "guest/stand_in.h"
#include "protocol/message.h"
#include "protocol/outward.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;
using protocol::Outward;
using protocol::OutwardKind;

constexpr int kOriginalDestination = 80;  // SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST
constexpr std::size_t kLargestLookup = 4096;
constexpr std::size_t kMostLookups = 64;  // that wait for their answer

union Address {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
};

// A message to the machine's first process, with a descriptor unless that is -1.
bool hand_over(int socket, const void* data, std::size_t size, int fd) {
  struct iovec bytes{const_cast<void*>(data), size};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  struct msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

// Where the program wanted to go. False: nobody knows, or it means our own socket.
bool find_destination(int fd, Outward& outward) {
  Address here{};
  Address meant{};
  socklen_t size = sizeof here;
  if (getsockname(fd, &here.any, &size) != 0) {
    return false;
  }
  const bool four = here.any.sa_family == AF_INET;
  size = four ? sizeof meant.four : sizeof meant.six;
  if (getsockopt(fd, four ? SOL_IP : SOL_IPV6, kOriginalDestination, &meant, &size) != 0 ||
      memcmp(&here, &meant, size) == 0) {
    return false;
  }
  outward.version = four ? 4 : 6;
  outward.port = ntohs(four ? meant.four.sin_port : meant.six.sin6_port);
  if (four) {
    memcpy(outward.address, &meant.four.sin_addr, sizeof meant.four.sin_addr);
  } else {
    memcpy(outward.address, &meant.six.sin6_addr, sizeof meant.six.sin6_addr);
  }
  return true;
}

// Lookups come as datagrams and go out as over TCP, one after the other on one connection, which
// answers in their order.
class Lookups {
 public:
  explicit Lookups(int first) : first_(first) {}

  [[nodiscard]] int connection() const { return connection_; }

  void take(int socket) {
    char text[2 + kLargestLookup];
    Waiting one{socket, {}, sizeof one.from};
    const ssize_t n =
        recvfrom(socket, text + 2, kLargestLookup, MSG_DONTWAIT, &one.from.any, &one.size);
    if (n <= 0 || waiting_ == kMostLookups || (connection_ < 0 && !connect())) {
      return;  // whoever asked asks again
    }
    text[0] = static_cast<char>(n >> 8);
    text[1] = static_cast<char>(n);
    const auto whole = static_cast<std::size_t>(n + 2);
    if (send(connection_, text, whole, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(whole)) {
      hang_up();  // half of a lookup is none
      return;
    }
    queue_[(next_ + waiting_++) % kMostLookups] = one;
  }

  void answer() {
    const ssize_t n = recv(connection_, answer_ + have_, sizeof answer_ - have_, MSG_DONTWAIT);
    if (n <= 0) {
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        hang_up();
      }
      return;
    }
    have_ += static_cast<std::size_t>(n);
    for (;;) {
      const std::size_t size = have_ < 2 ? 0
                                         : static_cast<unsigned char>(answer_[0]) * 256U +
                                               static_cast<unsigned char>(answer_[1]);
      if (have_ < 2 || have_ < size + 2) {
        return;
      }
      if (waiting_ > 0) {
        const Waiting& one = queue_[next_];
        if (size > 0) {
          sendto(one.socket, answer_ + 2, size, MSG_DONTWAIT | MSG_NOSIGNAL, &one.from.any,
                 one.size);
        }
        next_ = (next_ + 1) % kMostLookups;
        --waiting_;
      }
      memmove(answer_, answer_ + size + 2, have_ - size - 2);
      have_ -= size + 2;
    }
  }

 private:
  struct Waiting {
    int socket = -1;
    Address from{};
    socklen_t size = 0;
  };

  bool connect() {
    int ends[2];
    unsigned char label[protocol::kOutwardSize] = {};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return false;
    }
    protocol::write_outward({OutwardKind::kLookups, 0, {}, 0}, label);
    const bool given = hand_over(first_, label, sizeof label, ends[1]);
    close(ends[1]);
    connection_ = ends[0];
    return given;
  }

  void hang_up() {
    close(connection_);
    connection_ = -1;
    waiting_ = have_ = 0;
  }

  int first_;
  int connection_ = -1;
  Waiting queue_[kMostLookups];
  std::size_t next_ = 0;
  std::size_t waiting_ = 0;
  char answer_[2 + (64U << 10)];
  std::size_t have_ = 0;
};

// Takes connections in the sandbox's network and hands them to the machine's first process.
class Switchboard {
 public:
  Switchboard(int first, const int* sockets) : first_(first), lookups_(first) {
    memcpy(sockets_, sockets, sizeof sockets_);
  }

  void run() {
    for (;;) {
      struct pollfd watched[protocol::kNetworkSockets + 1] = {};
      for (std::uint32_t i = 0; i < protocol::kNetworkSockets; ++i) {
        watched[i] = {sockets_[i], POLLIN, 0};
      }
      watched[protocol::kNetworkSockets] = {lookups_.connection(), POLLIN, 0};
      if (poll(watched, protocol::kNetworkSockets + 1, -1) < 0 && errno != EINTR) {
        return;
      }
      if (watched[protocol::kNetworkSockets].revents != 0) {
        lookups_.answer();
      }
      for (std::uint32_t i = 0; i < protocol::kNetworkSockets; ++i) {
        if (watched[i].revents != 0 && !take(i)) {
          return;
        }
      }
    }
  }

 private:
  // False: the first process is not there any more.
  bool take(std::uint32_t which) {
    if (which == protocol::kDnsSocket || which == protocol::kDnsSocket6) {
      lookups_.take(sockets_[which]);
      return true;
    }
    const int client = accept4(sockets_[which], nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
      return true;
    }
    Outward outward;
    bool known = true;
    if (which == protocol::kTcpSocket || which == protocol::kTcpSocket6) {
      outward.kind = OutwardKind::kRedirected;
      known = find_destination(client, outward);
    } else {
      outward.kind = which == protocol::kProxySocket ? OutwardKind::kProxy : OutwardKind::kDns;
    }
    unsigned char label[protocol::kOutwardSize] = {};
    protocol::write_outward(outward, label);
    const bool on = !known || hand_over(first_, label, sizeof label, client);
    close(client);
    return on;
  }

  int first_;
  int sockets_[protocol::kNetworkSockets];
  Lookups lookups_;
};

int call_guest() {
  constexpr unsigned kStepUs = 20'000;
  for (;;) {
    int fd = connect_to_guest();
    if (fd >= 0) {
      return fd;
    }
    usleep(kStepUs);  // it builds its room yet
  }
}

bool greet(int guest, std::string_view id) {
  unsigned char payload[64];
  protocol::Writer writer(payload);
  writer.u32(protocol::kVersion);
  writer.bytes(id);
  unsigned char frames[2 * protocol::kHeaderSize + sizeof payload];
  using Head = std::span<unsigned char, protocol::kHeaderSize>;
  const std::size_t size = writer.size();
  protocol::write_header({static_cast<std::uint32_t>(size), 0, FrameType::kHello},
                         Head(frames, protocol::kHeaderSize));
  memcpy(frames + protocol::kHeaderSize, payload, size);
  protocol::write_header({0, 1, FrameType::kNetwork},
                         Head(frames + protocol::kHeaderSize + size, protocol::kHeaderSize));
  return write_whole(guest,
                     {reinterpret_cast<const char*>(frames), 2 * protocol::kHeaderSize + size});
}

// The sockets of the sandbox's network, by their kinds; -1: there is no such.
bool take_sockets(std::string_view id, int* sockets) {
  const int guest = call_guest();
  Received frame;
  if (!greet(guest, id) || !receive(guest, FrameType::kWelcome, frame)) {
    return false;
  }
  free(frame.payload);
  frame = {};
  if (!receive(guest, FrameType::kNetworkSockets, frame)) {
    return false;
  }
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(frame.payload), frame.size});
  const std::uint32_t error = reader.u32();
  const std::uint32_t present = reader.u32();
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < protocol::kNetworkSockets; ++i) {
    sockets[i] = (present & 1U << i) != 0 && next < frame.count ? frame.descriptors[next++] : -1;
  }
  close(guest);
  return reader.finished() && error == 0;
}

[[noreturn]] void run_switchboard(int first, std::string_view id) {
  static int sockets[protocol::kNetworkSockets];
  write_file(AT_FDCWD, "/proc/self/oom_score_adj", "-1000");
  first = fcntl(first, F_DUPFD_CLOEXEC, 64);
  close_between(3, static_cast<unsigned>(first) - 1);
  close_from(static_cast<unsigned>(first) + 1);
  if (!take_sockets(id, sockets)) {
    _exit(1);
  }
  for (const std::uint32_t probe : {protocol::kDatagramProbe, protocol::kStreamProbe}) {
    close(sockets[probe]);
    sockets[probe] = -1;
  }
  const int yes = 1;
  for (const std::uint32_t stream :
       {protocol::kTcpSocket, protocol::kTcpSocket6, protocol::kProxySocket}) {
    setsockopt(sockets[stream], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  if (hand_over(first, "", 1, -1)) {
    static Switchboard board(first, sockets);
    board.run();
  }
  _exit(0);
}

}  // namespace

int start_switchboard(std::string_view id, Failure& failure) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    failure.at("start", "the machine's network", -errno);
    return -1;
  }
  const pid_t child = fork();
  if (child == 0) {
    run_switchboard(ends[1], id);
  }
  close(ends[1]);
  return child > 0 ? ends[0] : -1;
}

bool take_outward(int switchboard, HandedOver& taken) {
  struct iovec bytes{taken.label, sizeof taken.label};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  struct msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(switchboard, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  taken.fd = -1;
  if (struct cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr) {
    memcpy(&taken.fd, CMSG_DATA(header), sizeof taken.fd);
  }
  return n > 0;
}

}  // namespace carrel::guest
