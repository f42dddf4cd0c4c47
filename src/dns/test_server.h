#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dns/configuration.h"

// A DNS server on loopback for tests, over UDP and TCP. Each query is answered by a function, which
// may say any bytes, and as often as it likes.
namespace carrel::dns {

using Message = std::vector<std::uint8_t>;

struct Asked {
  Message message;
  std::string name;
  int type = 0;
  bool tcp = false;
  bool edns = false;
  sockaddr_in6 client = {};  // over UDP

  [[nodiscard]] bool is_a() const { return type == 1; }

  // The question again, with these flags, and behind it records of addresses for its name.
  [[nodiscard]] Message reply(unsigned flags, const std::vector<Message>& addresses = {}) const {
    Message answer(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(end_));
    answer[2] = static_cast<std::uint8_t>(flags >> 8U);
    answer[3] = static_cast<std::uint8_t>(flags);
    answer[7] = static_cast<std::uint8_t>(addresses.size());
    answer[11] = 0;
    for (const Message& address : addresses) {
      const auto size = static_cast<std::uint8_t>(address.size());
      const std::uint8_t kind = size == 4 ? 1 : 28;
      answer.insert(answer.end(), {0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, size});
      answer.insert(answer.end(), address.begin(), address.end());
    }
    return answer;
  }

  // An answer to the question that cannot be used: the name is an alias of itself.
  [[nodiscard]] Message circle(unsigned flags) const {
    Message answer = reply(flags);
    answer[7] = 1;
    answer.insert(answer.end(), {0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 12});
    return answer;
  }

  static Asked parse(const Message& message) {
    Asked asked;
    asked.message = message;
    std::size_t at = 12;
    while (at < message.size() && message[at] != 0) {
      asked.name += asked.name.empty() ? "" : ".";
      asked.name.append(message.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                        message.begin() + static_cast<std::ptrdiff_t>(at) + 1 + message[at]);
      at += message[at] + 1U;
    }
    asked.type = message.at(at + 2);
    asked.end_ = at + 5;
    asked.edns = message[11] == 1;
    return asked;
  }

 private:
  std::size_t end_ = 0;
};

constexpr unsigned kFound = 0x8180;
constexpr unsigned kFoundTruncated = 0x8380;
constexpr unsigned kServfail = 0x8182;
constexpr unsigned kFormerr = 0x8181;
constexpr unsigned kNxdomain = 0x8183;

class TestServer {
 public:
  using Handler = std::function<std::vector<Message>(const Asked&)>;

  explicit TestServer(Handler handler, const in6_addr& address = mapped_loopback())
      : handler_(std::move(handler)) {
    sockaddr_in6 place{};
    place.sin6_family = AF_INET6;
    place.sin6_addr = address;
    if (::pipe(stop_) != 0) {
      ::abort();
    }
    // The port that the one gets may be somebody's at the other.
    for (int i = 0;
         i < 100 && !(bind_at(udp_, SOCK_DGRAM, place) && bind_at(tcp_, SOCK_STREAM, place)); ++i) {
      place.sin6_port = 0;
    }
    port_ = ntohs(place.sin6_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    ::close(stop_[1]);
    thread_.join();
    for (const int fd : {stop_[0], udp_, tcp_}) {
      ::close(fd);
    }
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] Configuration::Server place(const char* address = "127.0.0.1") const {
    return {*Address::parse(address), port_};
  }
  [[nodiscard]] std::vector<Asked> asked() const {
    const std::scoped_lock lock(mutex_);
    return asked_;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Asked& one : asked()) {
      if (one.is_a()) {
        result.push_back(one.name);
      }
    }
    return result;
  }

  static in6_addr mapped_loopback() {
    in6_addr address{};
    ::inet_pton(AF_INET6, "::ffff:127.0.0.1", &address);
    return address;
  }

 private:
  static bool bind_at(int& fd, int type, sockaddr_in6& place) {
    if (fd >= 0) {
      ::close(fd);
    }
    fd = ::socket(AF_INET6, type | SOCK_CLOEXEC, 0);
    const int off = 0;
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    socklen_t size = sizeof place;
    auto* generic = reinterpret_cast<sockaddr*>(&place);
    return ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0 &&
           (type == SOCK_DGRAM || ::listen(fd, 16) == 0);
  }

  std::vector<Message> answer(Asked asked) {
    {
      const std::scoped_lock lock(mutex_);
      asked_.push_back(asked);
    }
    return handler_(asked);
  }

  void serve() {
    for (;;) {
      pollfd all[3] = {{stop_[0], POLLIN, 0}, {udp_, POLLIN, 0}, {tcp_, POLLIN, 0}};
      if (::poll(all, 3, -1) < 0 || all[0].revents != 0) {
        return;
      }
      if (all[1].revents != 0) {
        serve_datagram();
      }
      if (all[2].revents != 0) {
        serve_stream();
      }
    }
  }

  void serve_datagram() {
    Message buffer(4096);
    sockaddr_in6 client{};
    socklen_t size = sizeof client;
    auto* generic = reinterpret_cast<sockaddr*>(&client);
    const ssize_t n = ::recvfrom(udp_, buffer.data(), buffer.size(), 0, generic, &size);
    if (n < 17) {
      return;
    }
    buffer.resize(static_cast<std::size_t>(n));
    Asked asked = Asked::parse(buffer);
    asked.client = client;
    for (const Message& reply : answer(asked)) {
      (void)!::sendto(udp_, reply.data(), reply.size(), 0, generic, size);
    }
  }

  void serve_stream() {
    const int client = ::accept4(tcp_, nullptr, nullptr, SOCK_CLOEXEC);
    const timeval patience{.tv_sec = 5, .tv_usec = 0};
    ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::uint8_t size[2] = {};
    if (::recv(client, size, 2, MSG_WAITALL) == 2) {
      Message buffer(static_cast<std::size_t>(size[0]) << 8U | size[1]);
      if (::recv(client, buffer.data(), buffer.size(), MSG_WAITALL) > 0) {
        Asked asked = Asked::parse(buffer);
        asked.tcp = true;
        for (Message reply : answer(asked)) {
          const auto length = reply.size();
          reply.insert(reply.begin(), {static_cast<std::uint8_t>(length >> 8U),
                                       static_cast<std::uint8_t>(length)});
          // In pieces, as a stream may come.
          (void)!::send(client, reply.data(), 1, MSG_NOSIGNAL);
          ::usleep(1000);
          (void)!::send(client, reply.data() + 1, reply.size() - 1, MSG_NOSIGNAL);
        }
      }
    }
    ::close(client);
  }

  Handler handler_;
  int stop_[2] = {-1, -1};
  int udp_ = -1;
  int tcp_ = -1;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
  std::thread thread_;
};

}  // namespace carrel::dns
