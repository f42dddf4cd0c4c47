#include "bench/egress_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace carrel::bench {

namespace {

constexpr std::size_t kRequest = 200;  // about what a short GET has
constexpr std::size_t kAnswer = 1000;  // and its answer
constexpr std::size_t kPiece = 256U << 10;
constexpr std::uint64_t kMebibyte = 1U << 20;

bool send_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) {
      return false;
    }
    data += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool receive_all(int fd, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, data, size, 0);
    if (n <= 0) {
      return false;
    }
    data += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

// A request is its size in mebibytes of the answer, 0 for a short one, and padding.
void serve(UniqueFd client) {
  std::array<char, kRequest> request{};
  const std::vector<char> data(kPiece, 'x');
  while (receive_all(client.get(), request.data(), request.size())) {
    std::uint64_t left = 0;
    std::memcpy(&left, request.data(), sizeof left);
    left = left == 0 ? kAnswer : left * kMebibyte;
    while (left > 0) {
      const std::size_t size = left < kPiece ? static_cast<std::size_t>(left) : kPiece;
      if (!send_all(client.get(), data.data(), size)) {
        return;
      }
      left -= size;
    }
  }
}

sockaddr_in place_of(const std::string& address, std::uint16_t port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &place.sin_addr);
  return place;
}

UniqueFd reach(const sockaddr_in& place) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
    fd.reset();
  }
  return fd;
}

bool ask(int fd, std::uint64_t mebibytes) {
  std::array<char, kRequest> request{};
  std::memcpy(request.data(), &mebibytes, sizeof mebibytes);
  std::vector<char> buffer(mebibytes == 0 ? kAnswer : kPiece);
  if (!send_all(fd, request.data(), request.size())) {
    return false;
  }
  std::uint64_t left = mebibytes == 0 ? kAnswer : mebibytes * kMebibyte;
  while (left > 0) {
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      return false;
    }
    left -= static_cast<std::uint64_t>(n);
  }
  return true;
}

bool work(std::string_view what, const sockaddr_in& place, std::uint64_t number) {
  if (what == "connects") {
    for (std::uint64_t i = 0; i < number; ++i) {
      const UniqueFd fd = reach(place);
      if (!fd.valid() || !ask(fd.get(), 0)) {
        return false;
      }
    }
    return true;
  }
  const UniqueFd fd = reach(place);
  if (what == "download") {
    return fd.valid() && ask(fd.get(), number);
  }
  bool done = fd.valid();
  for (std::uint64_t i = 0; done && i < number; ++i) {
    done = ask(fd.get(), 0);
  }
  return done;
}

}  // namespace

Result<EgressServer> EgressServer::start(const std::string& address) {
  EgressServer server;
  server.listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place = place_of(address, 0);
  socklen_t size = sizeof place;
  auto* where = reinterpret_cast<sockaddr*>(&place);
  if (!server.listener_.valid() || ::bind(server.listener_.get(), where, size) != 0 ||
      ::listen(server.listener_.get(), 512) != 0 ||
      ::getsockname(server.listener_.get(), where, &size) != 0) {
    return system_error("listen for the benchmark's clients");
  }
  server.port_ = ntohs(place.sin_port);
  server.thread_ = std::thread([listener = server.listener_.get()] {
    for (;;) {
      UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.valid()) {
        return;
      }
      const int yes = 1;
      ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      std::thread([fd = std::move(client)]() mutable { serve(std::move(fd)); }).detach();
    }
  });
  return server;
}

EgressServer::~EgressServer() {
  if (thread_.joinable()) {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
}

int be_egress_client(int count, char** words) {
  if (count != 4) {
    return 2;
  }
  const sockaddr_in place =
      place_of(words[1], static_cast<std::uint16_t>(std::strtoul(words[2], nullptr, 10)));
  const auto begun = std::chrono::steady_clock::now();
  if (!work(words[0], place, std::strtoull(words[3], nullptr, 10))) {
    std::perror("the benchmark's client");
    return 1;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
  std::printf("%.1f\n", took.count());
  return 0;
}

}  // namespace carrel::bench
