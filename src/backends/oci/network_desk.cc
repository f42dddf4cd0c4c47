#include "backends/oci/network_desk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>

#include "base/unix_socket.h"
#include "guest/captive.h"
#include "protocol/frame.h"
#include "protocol/message.h"

namespace carrel::oci {

namespace {

using protocol::FrameHeader;
using protocol::FrameType;

constexpr int kWaiting = 16;
constexpr int kPauseMs = 100;         // before what went wrong is tried again
constexpr int kRequestMs = 5'000;     // in which whoever came says what he wants
constexpr std::size_t kMostOpen = 8;  // connections; the oldest makes room for another
constexpr std::size_t kLargestRequest = 256;

std::string frame(FrameType type, std::uint32_t channel, std::string_view payload) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), channel, type}, head);
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()).append(payload);
}

// Takes a frame of that type off the front; false: there is none.
bool take(std::span<const unsigned char>& rest, FrameType type, FrameHeader& header,
          std::string_view& payload) {
  if (rest.size() < protocol::kHeaderSize ||
      !protocol::parse_header(rest.first<protocol::kHeaderSize>(), kLargestRequest, header) ||
      header.type != type || rest.size() - protocol::kHeaderSize < header.size) {
    return false;
  }
  payload = {reinterpret_cast<const char*>(rest.data()) + protocol::kHeaderSize, header.size};
  rest = rest.subspan(protocol::kHeaderSize + header.size);
  return true;
}

bool say(int connection, const std::string& text, std::span<const int> beside = {}) {
  return send_with(connection, text, beside, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

}  // namespace

Result<NetworkDesk> NetworkDesk::at(UniqueFd listener) {
  if (::listen(listener.get(), kWaiting) != 0 ||
      ::fcntl(listener.get(), F_SETFL, O_NONBLOCK) != 0) {
    return system_error("listen on the socket of the sandbox's network");
  }
  return NetworkDesk(std::move(listener));
}

bool answer_for_network(int connection) {
  std::array<unsigned char, kLargestRequest> request{};
  pollfd wait{connection, POLLIN, 0};
  const ssize_t n = ::poll(&wait, 1, kRequestMs) == 1
                        ? ::recv(connection, request.data(), request.size(), MSG_DONTWAIT)
                        : -1;
  std::span<const unsigned char> rest(request.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  FrameHeader header;
  std::string_view hello;
  std::string_view nothing;
  if (!take(rest, FrameType::kHello, header, hello) ||
      !say(connection, frame(FrameType::kWelcome, header.channel, hello)) ||
      !take(rest, FrameType::kNetwork, header, nothing) || !nothing.empty() || !rest.empty()) {
    return false;
  }
  guest::CaptiveSockets sockets;
  const int result = sockets.make();
  std::array<unsigned char, 8> fields{};
  protocol::Writer writer(fields);
  writer.u32(static_cast<std::uint32_t>(-result));
  writer.u32(sockets.present);
  const bool told = say(connection,
                        frame(FrameType::kNetworkSockets, header.channel,
                              {reinterpret_cast<const char*>(fields.data()), fields.size()}),
                        std::span<const int>(sockets.descriptors, sockets.count));
  // CRITICAL: what is held here would keep the ports from the next who serves them.
  sockets.close_all();
  return told && result == 0;
}

void NetworkDesk::work() {
  std::array<UniqueFd, kMostOpen> open;
  std::size_t next = 0;
  for (;;) {
    std::array<pollfd, 1 + kMostOpen> news{};
    news[0] = {listener_.get(), POLLIN, 0};
    for (std::size_t i = 0; i < kMostOpen; ++i) {
      news[1 + i] = {open[i].valid() ? open[i].get() : -1, POLLIN, 0};
    }
    if (::poll(news.data(), news.size(), -1) < 0) {
      continue;
    }
    for (std::size_t i = 0; i < kMostOpen; ++i) {
      if (news[1 + i].revents != 0) {  // nobody says anything more: this is an end
        open[i].reset();
      }
    }
    if (news[0].revents == 0) {
      continue;
    }
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid() && answer_for_network(connection.get())) {
      open[next] = std::move(connection);
      next = (next + 1) % kMostOpen;
    } else if (!connection.valid() && errno != EAGAIN) {
      ::poll(nullptr, 0, kPauseMs);
    }
  }
}

}  // namespace carrel::oci
