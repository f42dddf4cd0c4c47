#include "egress/guest_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/unix_socket.h"
#include "egress/io.h"
#include "kernel/captive_ports.h"
#include "kernel/network_cookie.h"
#include "protocol/frame.h"
#include "protocol/wire.h"

namespace carrel::egress {

namespace {

using protocol::FrameHeader;
using protocol::FrameType;

constexpr std::chrono::seconds kGuestPatience{30};  // it may be booting

std::string frame(FrameType type, std::uint32_t channel, std::string_view payload) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), channel, type}, head);
  std::string data(reinterpret_cast<const char*>(head.data()), head.size());
  return data.append(payload);
}

std::string hello(const std::string& id) {
  std::array<unsigned char, 64> buffer{};
  protocol::Writer writer(buffer);
  writer.u32(protocol::kVersion);
  writer.bytes(id);
  return frame(FrameType::kHello, 0, {reinterpret_cast<const char*>(buffer.data()), writer.size()});
}

struct Kind {
  int family;
  int type;
  std::uint16_t port;  // 0: it is not bound
};

// In the order of NetworkSocket.
constexpr std::array<Kind, protocol::kNetworkSockets> kKinds = {{
    {AF_INET, SOCK_STREAM, kernel::kCaptiveTcpPort},
    {AF_INET6, SOCK_STREAM, kernel::kCaptiveTcpPort},
    {AF_INET, SOCK_DGRAM, kernel::kCaptiveDnsPort},
    {AF_INET6, SOCK_DGRAM, kernel::kCaptiveDnsPort},
    {AF_INET, SOCK_STREAM, kernel::kCaptiveDnsPort},
    {AF_INET6, SOCK_STREAM, kernel::kCaptiveDnsPort},
    {AF_INET, SOCK_STREAM, kernel::kCaptiveProxyPort},
    {AF_INET, SOCK_DGRAM, 0},
    {AF_INET, SOCK_STREAM, 0},
}};

bool is_of_kind(int fd, const Kind& kind) {
  SocketAddress here;
  here.size = sizeof here.storage;
  if (::getsockname(fd, here.get(), &here.size) != 0 || here.storage.ss_family != kind.family ||
      here.port() != kind.port) {
    return false;
  }
  const auto address = here.address();
  const bool bound = kind.port != 0;
  const int listens = bound && kind.type == SOCK_STREAM ? 1 : 0;
  return address.has_value() && (!bound || classify(*address) == policy::AddressClass::kLoopback) &&
         kernel::socket_option<int>(fd, SO_DOMAIN) == kind.family &&
         kernel::socket_option<int>(fd, SO_TYPE) == kind.type &&
         kernel::socket_option<int>(fd, SO_ACCEPTCONN) == listens;
}

// The frames of a guest with the descriptors that came beside them.
class FrameReader {
 public:
  explicit FrameReader(Watched& guest) : guest_(&guest) {}

  // False: the guest is gone, is late, or makes no sense.
  Task<bool> next(FrameHeader& header, std::string& payload, Deadline deadline) {
    for (;;) {
      if (data_.size() >= protocol::kHeaderSize) {
        const std::span<const unsigned char, protocol::kHeaderSize> head(
            reinterpret_cast<const unsigned char*>(data_.data()), protocol::kHeaderSize);
        if (!protocol::parse_header(head, kLargest, header)) {
          co_return false;
        }
        if (data_.size() - protocol::kHeaderSize >= header.size) {
          payload = data_.substr(protocol::kHeaderSize, header.size);
          data_.erase(0, protocol::kHeaderSize + header.size);
          co_return true;
        }
      }
      std::array<char, 512> buffer;
      const ssize_t n = receive_with(guest_->fd(), buffer, descriptors_, MSG_DONTWAIT);
      if (n > 0) {
        data_.append(buffer.data(), static_cast<std::size_t>(n));
        continue;
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        co_return false;
      }
      const Woken woken = co_await guest_->readable(deadline);
      if (woken == Woken::kLate) {
        co_return false;
      }
    }
  }
  std::vector<UniqueFd> take() { return std::move(descriptors_); }

 private:
  static constexpr std::size_t kLargest = 256;
  Watched* guest_;
  std::string data_;
  std::vector<UniqueFd> descriptors_;
};

}  // namespace

Result<RoomSockets> check_sockets(std::vector<UniqueFd> descriptors, std::uint32_t present) {
  const Error wrong{
      Code::kDenied, 0, "something else than the sockets of a sandbox's network came", {}};
  if ((present & protocol::kNeededSockets) != protocol::kNeededSockets ||
      present >> protocol::kNetworkSockets != 0) {
    return wrong;
  }
  static const auto own = kernel::own_network();  // this process stays in it
  std::optional<std::uint64_t> theirs;
  RoomSockets sockets;
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < protocol::kNetworkSockets; ++i) {
    if ((present & 1U << i) == 0) {
      continue;
    }
    if (next == descriptors.size() || !is_of_kind(descriptors[next].get(), kKinds[i])) {
      return wrong;
    }
    const auto network = kernel::network_of(descriptors[next].get());
    if (own.has_value() &&
        (!network.has_value() || network == own || (theirs.has_value() && network != theirs))) {
      return wrong;
    }
    theirs = network;
    sockets[i] = std::move(descriptors[next++]);
  }
  if (next != descriptors.size()) {
    return wrong;
  }
  return sockets;
}

Task<Result<RoomSockets>> take_sockets(Watched& guest, std::string id) {
  const Deadline deadline = in(kGuestPatience);
  const Error silent{Code::kUnavailable, 0, "the guest of sandbox " + id + " does not answer", {}};
  // Both at once: it would only wait for the second.
  const std::string greeting = hello(id) + frame(FrameType::kNetwork, 1, {});
  const bool greeted = co_await write_whole(guest, bytes_of(greeting), deadline);
  if (!greeted) {
    co_return silent;
  }
  FrameReader reader(guest);
  FrameHeader header;
  std::string payload;
  const bool welcomed = co_await reader.next(header, payload, deadline);
  if (!welcomed || header.type != FrameType::kWelcome) {
    co_return silent;
  }
  const bool answered = co_await reader.next(header, payload, deadline);
  if (!answered || header.type != FrameType::kNetworkSockets) {
    co_return silent;
  }
  protocol::Reader fields({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  const std::uint32_t error = fields.u32();
  const std::uint32_t present = fields.u32();
  if (!fields.finished()) {
    co_return silent;
  }
  if (error != 0) {
    co_return Error{Code::kConflict, static_cast<int>(error & 0xfff),
                    "the sandbox has no sockets for its network",
                    "a program in it may have taken port 3128, 61001 or 61053"};
  }
  co_return check_sockets(reader.take(), present);
}

}  // namespace carrel::egress
