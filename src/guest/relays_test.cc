#include "guest/relays.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace carrel::guest {
namespace {

using protocol::LoopbackFamily;

constexpr int kIdleMs = 200;
constexpr std::size_t kAnswerSize = protocol::kHeaderSize + 4;

TEST(RelayOrder, WhatWasWrittenIsReadAndNothingElse) {
  std::array<unsigned char, kRelayOrder> data{};
  write_relay_order({7, {8080, LoopbackFamily::kSix}}, data.data());
  std::string text(reinterpret_cast<const char*>(data.data()), data.size());
  RelayOrder order;
  ASSERT_TRUE(parse_relay_order(text, order));
  EXPECT_EQ(order.channel, 7U);
  EXPECT_EQ(order.wanted.port, 8080);
  EXPECT_EQ(order.wanted.family, LoopbackFamily::kSix);
  EXPECT_FALSE(parse_relay_order(text + "x", order));
  EXPECT_FALSE(parse_relay_order(text.substr(1), order));
  text.back() = 'x';
  EXPECT_FALSE(parse_relay_order(text, order));
}

// A server on a loopback port.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_.get(), 128), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] UniqueFd accept() const {
    UniqueFd client(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    limit(client.get());
    return client;
  }
  void close() { fd_.reset(); }

  static void limit(int fd) {
    const timeval most{10, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
};

std::string read_bytes(int fd, std::size_t size) {
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n = ::recv(fd, text.data() + have, size - have, 0);
    if (n <= 0) {
      break;
    }
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n; (n = ::recv(fd, piece.data(), piece.size(), 0)) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  return text;
}

class Relays : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    door_.reset(ends[0]);
    worker_ = ::fork();
    if (worker_ == 0) {
      ::close(ends[0]);
      serve_relays(ends[1], kIdleMs);
    }
    ::close(ends[1]);
  }
  void TearDown() override {
    door_.reset();
    if (worker_ > 0) {
      ::kill(worker_, SIGKILL);
      ::waitpid(worker_, nullptr, 0);
    }
  }

  // The host's end of a connection to that port.
  [[nodiscard]] UniqueFd connect(std::uint16_t port) const {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const UniqueFd theirs(ends[1]);
    EXPECT_EQ(hand_to_relays(door_.get(), {1, {port, LoopbackFamily::kFour}}, theirs.get()), 0);
    Listener::limit(ends[0]);
    return UniqueFd(ends[0]);
  }
  // The errno of the answer, or -1.
  static int answer(int host) {
    const std::string text = read_bytes(host, kAnswerSize);
    if (text.size() != kAnswerSize) {
      return -1;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    protocol::FrameHeader header;
    EXPECT_TRUE(protocol::parse_header(
        std::span<const unsigned char, protocol::kHeaderSize>(bytes, protocol::kHeaderSize), 4,
        header));
    EXPECT_EQ(header.type, protocol::FrameType::kConnected);
    protocol::Reader reader({bytes + protocol::kHeaderSize, 4});
    return static_cast<int>(reader.u32());
  }
  // Whether the worker ends by itself within ten seconds.
  bool worker_ends() {
    for (int i = 0; i < 1000; ++i) {
      if (::waitpid(worker_, nullptr, WNOHANG) == worker_) {
        worker_ = 0;
        return true;
      }
      ::usleep(10'000);
    }
    return false;
  }

  UniqueFd door_;
  pid_t worker_ = 0;
};

TEST_F(Relays, BytesAndEndsGoBothWays) {
  const Listener server;
  const UniqueFd host = connect(server.port());
  const UniqueFd inside = server.accept();
  ASSERT_EQ(answer(host.get()), 0);
  ASSERT_EQ(::send(host.get(), "question", 8, 0), 8);
  ASSERT_EQ(::shutdown(host.get(), SHUT_WR), 0);
  EXPECT_EQ(read_all(inside.get()), "question");
  ASSERT_EQ(::send(inside.get(), "answer", 6, 0), 6);
  ASSERT_EQ(::shutdown(inside.get(), SHUT_WR), 0);
  EXPECT_EQ(read_all(host.get()), "answer");
}

TEST_F(Relays, ManyBytesComeWholeWhoeverIsSlow) {
  const Listener server;
  const UniqueFd host = connect(server.port());
  const UniqueFd inside = server.accept();
  ASSERT_EQ(answer(host.get()), 0);
  std::string sent(3U << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<char>(i * 31 >> 3);
  }
  std::thread writer([&] {
    for (std::size_t at = 0; at < sent.size();) {
      const ssize_t n = ::send(host.get(), sent.data() + at, sent.size() - at, MSG_NOSIGNAL);
      if (n <= 0) {
        break;
      }
      at += static_cast<std::size_t>(n);
    }
    ::shutdown(host.get(), SHUT_WR);
  });
  std::thread echo([&] {
    ::usleep(50'000);
    const std::string got = read_all(inside.get());
    for (std::size_t at = 0; at < got.size();) {
      const ssize_t n = ::send(inside.get(), got.data() + at, got.size() - at, MSG_NOSIGNAL);
      if (n <= 0) {
        break;
      }
      at += static_cast<std::size_t>(n);
    }
    ::shutdown(inside.get(), SHUT_WR);
  });
  const bool same = read_all(host.get()) == sent;
  writer.join();
  echo.join();
  EXPECT_TRUE(same);
}

TEST_F(Relays, NobodyThereIsSaid) {
  Listener server;
  const std::uint16_t port = server.port();
  server.close();
  const UniqueFd host = connect(port);
  EXPECT_EQ(answer(host.get()), ECONNREFUSED);
  EXPECT_EQ(read_all(host.get()), "");
}

TEST_F(Relays, WhatWasSaidBeforeTheHostLeftArrives) {
  const Listener server;
  UniqueFd host = connect(server.port());
  const UniqueFd inside = server.accept();
  ASSERT_EQ(answer(host.get()), 0);
  ASSERT_EQ(::send(host.get(), "last words", 10, 0), 10);
  host.reset();
  EXPECT_EQ(read_all(inside.get()), "last words");
}

TEST_F(Relays, AServerThatResetsEndsTheOtherSideToo) {
  const Listener server;
  const UniqueFd host = connect(server.port());
  UniqueFd inside = server.accept();
  ASSERT_EQ(answer(host.get()), 0);
  const linger now{1, 0};
  ASSERT_EQ(::setsockopt(inside.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  inside.reset();
  pollfd left{host.get(), 0, 0};
  ASSERT_EQ(::poll(&left, 1, 10'000), 1);
  EXPECT_NE(left.revents & POLLHUP, 0);
}

TEST_F(Relays, WhoIsOneTooManyWaitsForAnothersEnd) {
  const Listener server;
  std::vector<UniqueFd> hosts;
  std::vector<UniqueFd> insides;
  for (std::size_t i = 0; i < kMostRelays; ++i) {
    hosts.push_back(connect(server.port()));
    insides.push_back(server.accept());
    ASSERT_EQ(answer(hosts.back().get()), 0);
  }
  const UniqueFd last = connect(server.port());
  pollfd early{last.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&early, 1, 100), 0);
  hosts.front().reset();
  insides.front().reset();
  const UniqueFd inside = server.accept();
  EXPECT_EQ(answer(last.get()), 0);
}

TEST_F(Relays, AStoppedServerHoldsUpNobodyElse) {
  const Listener server;
  const UniqueFd stuck = connect(server.port());
  const UniqueFd never_read = server.accept();
  ASSERT_EQ(answer(stuck.get()), 0);
  ::fcntl(stuck.get(), F_SETFL, O_NONBLOCK);
  const std::string much(1U << 20, 'x');
  for (int i = 0; i < 200; ++i) {
    if (::send(stuck.get(), much.data(), much.size(), MSG_NOSIGNAL) < 0) {
      ::usleep(1000);
    }
  }
  const UniqueFd host = connect(server.port());
  const UniqueFd inside = server.accept();
  ASSERT_EQ(answer(host.get()), 0);
  ASSERT_EQ(::send(inside.get(), "here", 4, 0), 4);
  EXPECT_EQ(read_bytes(host.get(), 4), "here");
}

TEST_F(Relays, WithNothingToDoItEndsAndTheNextOneIsTold) {
  ASSERT_TRUE(worker_ends());
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd own(ends[0]);
  const UniqueFd theirs(ends[1]);
  EXPECT_EQ(hand_to_relays(door_.get(), {1, {1, LoopbackFamily::kFour}}, theirs.get()), -EPIPE);
}

TEST_F(Relays, ItEndsWithItsDoor) {
  door_.reset();
  EXPECT_TRUE(worker_ends());
}

}  // namespace
}  // namespace carrel::guest
