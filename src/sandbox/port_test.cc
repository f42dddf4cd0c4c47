#include "sandbox/port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/unix_socket.h"
#include "sandbox/fake_guest_test_support.h"

namespace carrel::sandbox {
namespace {

using protocol::FrameType;
using protocol::LoopbackFamily;
using testing::HasSubstr;

constexpr std::uint16_t kPort = 8080;

std::string answer(std::uint32_t error, std::uint32_t channel = 1) {
  return FakeGuest::frame(FrameType::kConnected,
                          payload([&](protocol::Writer& writer) { writer.u32(error); }), channel);
}

UniqueFd tcp_socket(int family = AF_INET) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// A port whose guest answers the first question with these bytes and descriptors.
Result<UniqueFd> begin_with(const std::string& bytes, std::vector<int> descriptors,
                            LoopbackFamily family = LoopbackFamily::kFour) {
  auto both = StreamAndGuest::make();
  std::thread guest([&] {
    (void)both.guest.read();
    (void)send_with(both.guest.fd(), bytes, descriptors, MSG_NOSIGNAL);
  });
  Port port(std::move(both.stream), kPort);
  auto socket = port.begin(family);
  guest.join();
  return socket;
}

TEST(Port, AsksForOneFamilyAndOnePort) {
  auto both = StreamAndGuest::make();
  std::optional<FakeGuest::Frame> asked;
  std::thread guest([&] {
    asked = both.guest.read();
    both.guest.write(answer(ECONNREFUSED));
  });
  Port port(std::move(both.stream), kPort);
  const auto socket = port.begin(LoopbackFamily::kSix);
  guest.join();
  ASSERT_TRUE(asked.has_value());
  protocol::Connect connect;
  EXPECT_EQ(asked->header.type, FrameType::kConnect);
  ASSERT_TRUE(protocol::parse_connect(asked->payload, connect));
  EXPECT_EQ(connect.port, kPort);
  EXPECT_EQ(connect.family, LoopbackFamily::kSix);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kUnavailable);
  EXPECT_EQ(socket.error().hint, "nothing listens there");
}

TEST(Port, TriesTheSecondFamilyWhereNobodyListensAtTheFirst) {
  auto both = StreamAndGuest::make();
  int asked = 0;
  std::thread guest([&] {
    for (std::uint32_t channel = 1; channel <= 2 && both.guest.read().has_value(); ++channel) {
      ++asked;
      both.guest.write(answer(ECONNREFUSED, channel));
    }
  });
  Port port(std::move(both.stream), kPort);
  const auto socket = port.connect(std::chrono::seconds(5));
  guest.join();
  EXPECT_EQ(asked, 2);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kUnavailable);
}

TEST(Port, AGuestThatIsGoneIsTold) {
  auto both = StreamAndGuest::make();
  both.guest.close();
  Port port(std::move(both.stream), kPort);
  const auto socket = port.begin(LoopbackFamily::kFour);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kGone);
}

// CRITICAL for all of these: nothing that the guest sends is taken for a connection.
TEST(Port, WhatIsNoAnswerIsRefused) {
  const UniqueFd socket = tcp_socket();
  const int fd = socket.get();
  const std::vector<std::pair<std::string, std::vector<int>>> hostile = {
      {answer(0), {}},               // a success without a socket
      {answer(0), {fd, fd}},         // with two
      {answer(ECONNREFUSED), {fd}},  // a failure with one
      {answer(1U << 20), {}},        // no error number
      {answer(0, 7), {fd}},          // to another question
      {FakeGuest::frame(FrameType::kOutput, "abcd"), {fd}},
      {std::string(16, '\xff'), {fd}},
  };
  for (const auto& [bytes, descriptors] : hostile) {
    const auto taken = begin_with(bytes, descriptors);
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, Code::kDenied) << taken.error().to_string();
  }
}

TEST(Port, WhatIsNoTcpSocketIsRefused) {
  const UniqueFd file(::memfd_create("x", MFD_CLOEXEC));
  const UniqueFd datagrams(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const UniqueFd local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd other_family = tcp_socket(AF_INET6);
  for (const UniqueFd* fd : {&file, &datagrams, &local, &other_family}) {
    const auto taken = begin_with(answer(0), {fd->get()});
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, Code::kDenied);
  }
}

TEST(Port, ASocketOfTheHostsOwnNetworkIsRefused) {
  const UniqueFd own = tcp_socket();
  const auto taken = begin_with(answer(0), {own.get()});
  ASSERT_FALSE(taken.ok()) << "before Linux 5.14 the kernel does not tell";
  EXPECT_EQ(taken.error().code, Code::kDenied);
}

// In a network of its own, a child makes a server and a socket that `connect` brings somewhere.
class OtherNetwork {
 public:
  explicit OtherNetwork(const std::function<int(UniqueFd& listener)>& make) {
    std::array<int, 2> pair{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    const UniqueFd here(pair[0]);
    const UniqueFd there(pair[1]);
    const pid_t child = ::fork();
    if (child == 0) {
      UniqueFd listener;
      const bool moved =
          ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && std::system("ip link set lo up") == 0;
      const int fd = moved ? make(listener) : -1;
      if (fd >= 0) {
        (void)send_with(there.get(), "s", std::span(&fd, 1), 0);
      }
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    char byte = 0;
    (void)receive_with(here.get(), std::span(&byte, 1), sockets_, MSG_DONTWAIT);
  }
  [[nodiscard]] int socket() const { return sockets_.empty() ? -1 : sockets_.front().get(); }

 private:
  std::vector<UniqueFd> sockets_;
};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket that is connected to a server at that port.
int connected_to(UniqueFd& listener, std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* place = reinterpret_cast<const sockaddr*>(&address);
  return ::bind(listener.get(), place, sizeof address) == 0 && ::listen(listener.get(), 1) == 0 &&
                 ::connect(fd, place, sizeof address) == 0
             ? fd
             : -1;
}

TEST(Port, AStreamToThePortIsTakenAndOneToAnotherIsNot) {
  for (const std::uint16_t reached : {kPort, std::uint16_t{8081}}) {
    const OtherNetwork network([&](UniqueFd& listener) { return connected_to(listener, reached); });
    if (network.socket() < 0) {
      GTEST_SKIP() << "no namespaces here";
    }
    auto taken = begin_with(answer(0), {network.socket()});
    ASSERT_TRUE(taken.ok()) << taken.error().to_string();
    auto both = StreamAndGuest::make();
    const Status finished = Port(std::move(both.stream), kPort).finish(taken->get());
    EXPECT_EQ(finished.ok(), reached == kPort);
  }
}

TEST(Port, AListeningSocketIsRefused) {
  const OtherNetwork network([](UniqueFd& listener) {
    const sockaddr_in address = loopback(kPort);
    listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
                       0 &&
                   ::listen(listener.get(), 1) == 0
               ? listener.get()
               : -1;
  });
  if (network.socket() < 0) {
    GTEST_SKIP() << "no namespaces here";
  }
  const auto taken = begin_with(answer(0), {network.socket()});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Code::kDenied);
}

}  // namespace
}  // namespace carrel::sandbox
