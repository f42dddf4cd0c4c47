#include "sandbox/port.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/unix_socket.h"
#include "kernel/network_cookie.h"

namespace carrel::sandbox {

namespace {

using Clock = std::chrono::steady_clock;
using protocol::FrameHeader;
using protocol::FrameType;
using protocol::LoopbackFamily;

constexpr std::size_t kAnswerSize = protocol::kHeaderSize + 4;
constexpr std::chrono::seconds kAnswerPatience{10};
constexpr std::chrono::seconds kRestPatience{1};  // for the rest of one that has begun to come
constexpr std::uint32_t kRelayChannel = 1;
constexpr std::uint32_t kLargestErrno = 4095;

Error wrong() {
  return Error{Code::kDenied, 0, "the sandbox's guest sent something else than a connection",
               "the sandbox is not to be trusted any more: remove it"};
}

// Waits until the deadline; false when nothing happened.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd wait{fd, events, 0};
  return ::poll(&wait, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30))) != 0;
}

// CRITICAL: a TCP socket that does not listen, in a network that is not ours. Any other could be
// something of the host's that the guest has got hold of, or read as if it were a stream.
bool is_stream_elsewhere(int fd, LoopbackFamily family) {
  using kernel::socket_option;
  const auto own = kernel::own_network();
  const auto network = kernel::network_of(fd);
  return socket_option<int>(fd, SO_DOMAIN) ==
             (family == LoopbackFamily::kFour ? AF_INET : AF_INET6) &&
         socket_option<int>(fd, SO_TYPE) == SOCK_STREAM &&
         socket_option<int>(fd, SO_PROTOCOL) == IPPROTO_TCP &&
         socket_option<int>(fd, SO_ACCEPTCONN) == 0 &&
         (!own.has_value() || (network.has_value() && network != own));
}

// The port of the other end, if that is a loopback address; 0 otherwise.
std::uint16_t loopback_peer(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return 0;
  }
  if (peer.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &peer, sizeof four);
    return four.sin_addr.s_addr == htonl(INADDR_LOOPBACK) ? ntohs(four.sin_port) : 0;
  }
  sockaddr_in6 six{};
  std::memcpy(&six, &peer, sizeof six);
  return peer.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) != 0
             ? ntohs(six.sin6_port)
             : 0;
}

// What the guest said about a connection, with what came beside it.
struct Answer {
  int error = 0;
  std::vector<UniqueFd> descriptors;
};

// Reads no byte beyond it.
Result<Answer> read_answer(int fd, std::uint32_t channel, Clock::time_point deadline) {
  Answer answer;
  std::array<char, kAnswerSize> frame{};
  std::size_t have = 0;
  while (have < frame.size()) {
    const std::span<char> room = std::span(frame).subspan(have);
    const ssize_t n = receive_with(fd, room, answer.descriptors, MSG_DONTWAIT);
    if (n > 0) {
      have += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Error{Code::kGone, 0, "the sandbox ended", {}};
    } else if (!wait_for(fd, POLLIN, deadline)) {
      return Error{Code::kTimeout, 0, "the sandbox's guest does not answer", {}};
    }
  }
  const std::span<const unsigned char> bytes(reinterpret_cast<const unsigned char*>(frame.data()),
                                             frame.size());
  FrameHeader header;
  protocol::Reader fields(bytes.subspan(protocol::kHeaderSize));
  const std::uint32_t error = fields.u32();
  const bool parsed = protocol::parse_header(bytes.first<protocol::kHeaderSize>(),
                                             protocol::kMaxGuestPayload, header);
  if (parsed && header.type == FrameType::kRefused) {
    return Error{Code::kUnsupported, 0, "the sandbox was made by a version without ports", {}};
  }
  if (!parsed || header.type != FrameType::kConnected || header.channel != channel ||
      header.size != 4 || error > kLargestErrno) {
    return wrong();
  }
  answer.error = static_cast<int>(error);
  return answer;
}

}  // namespace

Error Port::failed(int error) const {
  return Error{error == ECONNREFUSED ? Code::kUnavailable : Code::kSystem, error,
               "connect to port " + std::to_string(number_) + " in the sandbox",
               error == ECONNREFUSED ? "nothing listens there"
               : error == EBUSY      ? "the sandbox is paused"
               : error == EAGAIN     ? "there are too many connections to its ports"
                                     : ""};
}

Result<UniqueFd> Port::take_answer(std::uint32_t channel) {
  CARREL_ASSIGN(Answer answer, read_answer(stream_.fd(), channel, Clock::now() + kAnswerPatience));
  if (answer.descriptors.size() != (answer.error == 0 ? 1U : 0U)) {
    return wrong();
  }
  if (answer.error != 0) {
    return failed(answer.error);
  }
  return std::move(answer.descriptors.front());
}

// That no more connections can be had is not the end of the sandbox.
Result<Port::Begun> Port::begin_relay(const std::string& request) {
  auto another = dial_();
  if (!another.ok()) {
    return Error{Code::kSystem, another.error().error_number,
                 "no connection for port " + std::to_string(number_) +
                     " in the sandbox: " + another.error().message,
                 another.error().hint};
  }
  if (!another->send(kRelayChannel, FrameType::kRelay, request).ok()) {
    return failed(ECONNRESET);
  }
  // The guest says nothing more that was not asked for, so nothing was read ahead.
  Begun begun{another->release(), Awaited::kAnswer};
  if (::fcntl(begun.socket.get(), F_SETFL, O_NONBLOCK) != 0) {
    return system_error("have a connection to the sandbox not block");
  }
  return begun;
}

Result<Port::Begun> Port::begin(LoopbackFamily family) {
  std::array<unsigned char, 8> payload{};
  protocol::Writer writer(payload);
  protocol::write_connect(writer, {number_, family});
  const std::string request(reinterpret_cast<const char*>(payload.data()), writer.size());
  if (relayed_) {
    return begin_relay(request);
  }
  CARREL_TRY(stream_.send(++channel_, FrameType::kConnect, request));
  auto socket = take_answer(channel_);
  if (!socket.ok() && socket.error().error_number == EOPNOTSUPP) {
    relayed_ = true;
    return begin_relay(request);
  }
  if (!socket.ok()) {
    return socket.error();
  }
  if (!is_stream_elsewhere(socket->get(), family)) {
    return wrong();
  }
  return Begun{std::move(socket.value()), Awaited::kRoom};
}

Status Port::finish(const Begun& begun) const {
  const int socket = begun.socket.get();
  if (begun.awaited == Awaited::kAnswer) {
    auto answer = read_answer(socket, kRelayChannel, Clock::now() + kRestPatience);
    if (!answer.ok()) {
      // Of this connection only: whether the sandbox ended is told by the other one.
      return answer.error().code == Code::kGone ? failed(ECONNRESET) : answer.error();
    }
    if (!answer->descriptors.empty()) {
      return wrong();
    }
    return answer->error == 0 ? Status() : Status(failed(answer->error));
  }
  const int error = kernel::socket_option<int>(socket, SO_ERROR).value_or(EBADF);
  if (error != 0) {
    return failed(error);
  }
  if (loopback_peer(socket) != number_) {
    return wrong();
  }
  return {};
}

Result<UniqueFd> Port::connect_by(LoopbackFamily family, Clock::time_point deadline) {
  CARREL_ASSIGN(Begun begun, begin(family));
  const short awaited = begun.awaited == Awaited::kRoom ? POLLOUT : POLLIN;
  if (!wait_for(begun.socket.get(), awaited, deadline)) {
    return Error{Code::kTimeout, 0,
                 "port " + std::to_string(number_) + " in the sandbox does not answer",
                 "the program that listens there takes no connections"};
  }
  CARREL_TRY(finish(begun));
  return std::move(begun.socket);
}

Result<UniqueFd> Port::connect(std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  Result<UniqueFd> four = connect_by(LoopbackFamily::kFour, deadline);
  if (four.ok() || four.error().code != Code::kUnavailable) {
    return four;
  }
  Result<UniqueFd> six = connect_by(LoopbackFamily::kSix, deadline);
  return six.ok() ? std::move(six) : std::move(four);
}

}  // namespace carrel::sandbox
