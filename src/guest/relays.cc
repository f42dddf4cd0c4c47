#include "guest/relays.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <span>

#include "guest/loopback.h"
#include "protocol/frame.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;

// One way of a connection.
struct Way {
  char* piece = nullptr;  // kRelayPiece bytes, of this place in the table
  std::size_t start = 0;
  std::size_t size = 0;
  bool ended = false;  // nothing more comes
  bool told = false;   // and the other side knows, or is not there any more

  [[nodiscard]] bool wants() const { return !ended && size == 0; }
  [[nodiscard]] bool is_over() const { return ended && size == 0; }
  void give_up() {
    ended = told = true;
    size = 0;
  }
};

bool would_wait() { return errno == EAGAIN || errno == EINTR; }

// A connection from the host, and the one to the port.
class Relay {
 public:
  void keep_pieces(char* memory) {
    inward_.piece = memory;
    outward_.piece = memory + kRelayPiece;
  }
  [[nodiscard]] bool used() const { return host_ >= 0; }

  void begin(int host, const RelayOrder& order) {
    host_ = host;
    channel_ = order.channel;
    connected_ = false;
    for (Way* way : {&inward_, &outward_}) {
      way->start = way->size = 0;
      way->ended = way->told = false;
    }
    fcntl(host_, F_SETFL, O_NONBLOCK);
    inside_ = begin_connection(order.wanted);
    if (inside_ < 0) {
      const int error = -inside_;
      answer(error);
      end();
    }
  }

  // What it waits for; a descriptor of -1 is none.
  void watch(struct pollfd& host, struct pollfd& inside) const {
    host = {-1, 0, 0};
    inside = {-1, 0, 0};
    if (!used()) {
      return;
    }
    if (!connected_) {
      host.fd = host_;  // whether it is still there
      inside = {inside_, POLLOUT, 0};
      return;
    }
    host.events =
        static_cast<short>((inward_.wants() ? POLLIN : 0) | (outward_.size > 0 ? POLLOUT : 0));
    inside.events =
        static_cast<short>((outward_.wants() ? POLLIN : 0) | (inward_.size > 0 ? POLLOUT : 0));
    // That nobody on the host hears any more is told unasked, as long as it is of interest.
    host.fd = host.events != 0 || (inward_.ended && !outward_.told) ? host_ : -1;
    inside.fd = inside.events != 0 ? inside_ : -1;
  }

  void work(short host, short inside) {
    if (!connected_) {
      if ((host & (POLLHUP | POLLERR)) != 0) {
        end();
      } else if (inside != 0) {
        finish_connecting();
      }
      return;
    }
    if ((host & (POLLHUP | POLLERR)) != 0) {
      outward_.give_up();
    }
    if (!take(host_, host, inward_)) {
      inward_.ended = true;
    }
    if (!take(inside_, inside, outward_)) {
      end();  // it was reset, and so is the other one
      return;
    }
    if (!give(inside_, inward_)) {
      inward_.give_up();
      shutdown(host_, SHUT_RD);
    }
    if (!give(host_, outward_)) {
      outward_.give_up();
    }
    if (inward_.told && outward_.told) {
      end();
    }
  }

 private:
  // The answer is short, and the first that is said.
  void answer(int error) const {
    unsigned char frame[protocol::kHeaderSize + 4];
    protocol::write_header(
        {4, channel_, FrameType::kConnected},
        std::span<unsigned char, protocol::kHeaderSize>(frame, sizeof frame - 4));
    protocol::Writer writer({frame + protocol::kHeaderSize, 4});
    writer.u32(static_cast<std::uint32_t>(error));
    send(host_, frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void finish_connecting() {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(inside_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
    answer(error);
    if (error != 0) {
      end();
      return;
    }
    const int yes = 1;
    setsockopt(inside_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    connected_ = true;
  }

  // False: the connection is broken.
  static bool take(int from, short events, Way& way) {
    if (events == 0 || !way.wants()) {
      return true;
    }
    const ssize_t n = recv(from, way.piece, kRelayPiece, MSG_DONTWAIT);
    if (n > 0) {
      way.start = 0;
      way.size = static_cast<std::size_t>(n);
    }
    way.ended = n == 0;
    return n >= 0 || would_wait();
  }

  // False: nobody takes it any more.
  static bool give(int to, Way& way) {
    while (way.size > 0) {
      const ssize_t n = send(to, way.piece + way.start, way.size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0) {
        return n < 0 && would_wait();
      }
      way.start += static_cast<std::size_t>(n);
      way.size -= static_cast<std::size_t>(n);
    }
    if (way.is_over() && !way.told) {
      shutdown(to, SHUT_WR);
      way.told = true;
    }
    return true;
  }

  void end() {
    close(host_);
    if (inside_ >= 0) {
      close(inside_);
    }
    host_ = inside_ = -1;
  }

  int host_ = -1;
  int inside_ = -1;
  std::uint32_t channel_ = 0;
  bool connected_ = false;
  Way inward_;   // from the host
  Way outward_;  // to it
};

// What came through a door: the connection, or a negative errno: -EAGAIN where there is none, and
// -EPIPE where there will be none.
int take_order(int door, RelayOrder& order) {
  char bytes[kRelayOrder];
  struct iovec data{bytes, sizeof bytes};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(door, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n <= 0) {
    return n < 0 && would_wait() ? -EAGAIN : -EPIPE;
  }
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  int connection = -EAGAIN;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    memcpy(&connection, CMSG_DATA(header), sizeof connection);
  }
  if (connection >= 0 && !parse_relay_order({bytes, static_cast<std::size_t>(n)}, order)) {
    close(connection);
    return -EAGAIN;
  }
  return connection;
}

class Relays {
 public:
  explicit Relays(char* memory) {
    for (Relay& relay : table_) {
      relay.keep_pieces(memory);
      memory += 2 * kRelayPiece;
    }
  }

  void run(int door, int idle_ms) {
    bool open = true;
    while (open || busy()) {
      struct pollfd watched[1 + 2 * kMostRelays];
      // Who is the one too many waits at the door until another has ended.
      watched[0] = {open && free() != nullptr ? door : -1, POLLIN, 0};
      for (std::size_t i = 0; i < kMostRelays; ++i) {
        table_[i].watch(watched[1 + 2 * i], watched[2 + 2 * i]);
      }
      const int ready = poll(watched, 1 + 2 * kMostRelays, busy() ? -1 : idle_ms);
      if (ready == 0) {
        // From here on nobody hands over more; what came in this moment is still carried.
        shutdown(door, SHUT_RD);
        watched[0].revents = POLLIN;
        open = false;
      }
      if (ready < 0) {
        continue;
      }
      for (std::size_t i = 0; i < kMostRelays; ++i) {
        if (table_[i].used()) {
          table_[i].work(watched[1 + 2 * i].revents, watched[2 + 2 * i].revents);
        }
      }
      if (watched[0].revents != 0) {
        open = take(door) && open;
      }
    }
  }

 private:
  // False: there will be no more.
  bool take(int door) {
    while (Relay* relay = free()) {
      RelayOrder order;
      const int connection = take_order(door, order);
      if (connection < 0) {
        return connection != -EPIPE;
      }
      relay->begin(connection, order);
    }
    return true;
  }
  Relay* free() {
    for (Relay& relay : table_) {
      if (!relay.used()) {
        return &relay;
      }
    }
    return nullptr;
  }
  [[nodiscard]] bool busy() const {
    for (const Relay& relay : table_) {
      if (relay.used()) {
        return true;
      }
    }
    return false;
  }

  Relay table_[kMostRelays];
};

}  // namespace

void write_relay_order(const RelayOrder& order, unsigned char* data) {
  protocol::Writer writer({data, kRelayOrder});
  writer.u32(order.channel);
  protocol::write_connect(writer, order.wanted);
  writer.u8(0);
}

bool parse_relay_order(std::string_view data, RelayOrder& order) {
  if (data.size() != kRelayOrder || data.back() != '\0') {
    return false;
  }
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(data.data()), 4});
  order.channel = reader.u32();
  return protocol::parse_connect({data.data() + 4, kRelayOrder - 5}, order.wanted);
}

int hand_to_relays(int door, const RelayOrder& order, int connection) {
  unsigned char bytes[kRelayOrder];
  write_relay_order(order, bytes);
  struct iovec data{bytes, sizeof bytes};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof connection)] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof connection);
  memcpy(CMSG_DATA(header), &connection, sizeof connection);
  // Somebody may have stopped who is to take it: the guest never waits.
  if (sendmsg(door, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
    return 0;
  }
  return would_wait() || errno == ENOBUFS || errno == ENOMEM ? -EAGAIN : -EPIPE;
}

[[noreturn]] void serve_relays(int door, int idle_ms) {
  constexpr std::size_t kMemory = kMostRelays * 2 * kRelayPiece;
  signal(SIGPIPE, SIG_IGN);
  // What is not touched costs nothing.
  void* memory = mmap(nullptr, kMemory, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    _exit(1);
  }
  Relays relays(static_cast<char*>(memory));
  relays.run(door, idle_ms);
  _exit(0);
}

}  // namespace carrel::guest
