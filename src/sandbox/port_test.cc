#include "sandbox/port.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/unix_socket.h"
#include "sandbox/fake_guest_test_support.h"

namespace carrel::sandbox {
namespace {

using protocol::FrameType;
using protocol::LoopbackFamily;

constexpr std::uint16_t kPort = 8080;

std::string answer(std::uint32_t error, std::uint32_t channel = 1) {
  return FakeGuest::frame(FrameType::kConnected,
                          payload([&](protocol::Writer& writer) { writer.u32(error); }), channel);
}

Result<GuestStream> no_other() { return Error{Code::kGone, 0, "there is no other", {}}; }

// A port whose guest answers the first question with these bytes and descriptors.
Result<Port::Begun> begin_with(const std::string& bytes, std::vector<int> descriptors,
                               LoopbackFamily family = LoopbackFamily::kFour) {
  auto both = StreamAndGuest::make();
  std::thread guest([&] {
    (void)both.guest.read();
    (void)send_with(both.guest.fd(), bytes, descriptors, MSG_NOSIGNAL);
  });
  Port port(std::move(both.stream), kPort, no_other);
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
  Port port(std::move(both.stream), kPort, no_other);
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
  Port port(std::move(both.stream), kPort, no_other);
  const auto socket = port.connect(std::chrono::seconds(5));
  guest.join();
  EXPECT_EQ(asked, 2);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kUnavailable);
}

TEST(Port, AGuestThatIsGoneIsTold) {
  auto both = StreamAndGuest::make();
  both.guest.close();
  Port port(std::move(both.stream), kPort, no_other);
  const auto socket = port.begin(LoopbackFamily::kFour);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, Code::kGone);
}

// A port whose guest can pass no socket; another connection to it gets these bytes and descriptors.
class Relayed {
 public:
  Relayed() : both_(StreamAndGuest::make()), other_(StreamAndGuest::make()) {}

  Status finish_with(const std::string& bytes, const std::vector<int>& descriptors = {}) {
    std::thread guest([&] {
      (void)both_.guest.read();
      both_.guest.write(answer(EOPNOTSUPP));
      asked_ = other_.guest.read();
      if (!bytes.empty()) {
        (void)send_with(other_.guest.fd(), bytes, descriptors, MSG_NOSIGNAL);
      }
      other_.guest.close();
    });
    Port port(std::move(both_.stream), kPort, [&] { return std::move(other_.stream); });
    auto begun = port.begin(LoopbackFamily::kFour);
    guest.join();
    if (!begun.ok()) {
      return begun.error();
    }
    EXPECT_EQ(begun->awaited, Port::Awaited::kAnswer);
    const Status finished = port.finish(begun.value());
    socket_ = std::move(begun->socket);
    return finished;
  }
  [[nodiscard]] const std::optional<FakeGuest::Frame>& asked() const { return asked_; }
  // What comes after the answer.
  [[nodiscard]] std::string rest() const {
    std::array<char, 64> buffer{};
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }

 private:
  StreamAndGuest both_;
  StreamAndGuest other_;
  std::optional<FakeGuest::Frame> asked_;
  UniqueFd socket_;
};

TEST(Port, WhereNoSocketCanBePassedAnotherConnectionBecomesTheStream) {
  Relayed relayed;
  const Status finished = relayed.finish_with(answer(0) + "first bytes");
  ASSERT_TRUE(finished.ok()) << finished.error().to_string();
  ASSERT_TRUE(relayed.asked().has_value());
  EXPECT_EQ(relayed.asked()->header.type, FrameType::kRelay);
  protocol::Connect connect;
  ASSERT_TRUE(protocol::parse_connect(relayed.asked()->payload, connect));
  EXPECT_EQ(connect.port, kPort);
  EXPECT_EQ(relayed.rest(), "first bytes");
}

TEST(Port, NobodyBehindARelayIsAsNobodyAtAll) {
  const Status finished = Relayed().finish_with(answer(ECONNREFUSED));
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code, Code::kUnavailable);
}

TEST(Port, ARelayThatEndsWithoutAnAnswerIsNotTheEndOfTheSandbox) {
  const Status finished = Relayed().finish_with("");
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code, Code::kSystem);
}

TEST(Port, WhatIsNoAnswerOfARelayIsRefused) {
  const UniqueFd file(::memfd_create("x", MFD_CLOEXEC));
  const std::vector<std::pair<std::string, std::vector<int>>> hostile = {
      {answer(0), {file.get()}},
      {answer(1U << 20), {}},
      {answer(0, 7), {}},
      {FakeGuest::frame(FrameType::kOutput, std::string(4, '\0')), {}},
      {std::string(16, '\xff'), {}},
  };
  for (const auto& [bytes, descriptors] : hostile) {
    const Status finished = Relayed().finish_with(bytes, descriptors);
    ASSERT_FALSE(finished.ok());
    EXPECT_EQ(finished.error().code, Code::kDenied) << finished.error().to_string();
  }
}

TEST(Port, WhereNoOtherConnectionCanBeHadTheOthersGoOn) {
  auto both = StreamAndGuest::make();
  std::thread guest([&] {
    (void)both.guest.read();
    both.guest.write(answer(EOPNOTSUPP));
  });
  Port port(std::move(both.stream), kPort, no_other);
  const auto begun = port.begin(LoopbackFamily::kFour);
  guest.join();
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code, Code::kSystem);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool bring_up_loopback() {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Sockets of a network that is not the host's, as a guest would send them.
class OtherNetwork : public testing::Test {
 protected:
  enum Kind : std::size_t {
    kGood,
    kOtherPort,
    kListening,
    kOtherListening,
    kDatagrams,
    kSix,
    kLocal,
    kCount
  };

  void SetUp() override {
    std::array<int, 2> pair{-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
    const UniqueFd here(pair[0]);
    const UniqueFd there(pair[1]);
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(send_sockets(there.get()) ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    if (status != 0) {
      GTEST_SKIP() << "no namespaces here";
    }
    char byte = 0;
    ASSERT_EQ(receive_with(here.get(), std::span(&byte, 1), sockets_, MSG_DONTWAIT), 1);
    ASSERT_EQ(sockets_.size(), kCount);
  }
  [[nodiscard]] int socket(Kind kind) const { return sockets_[kind].get(); }

 private:
  static int listening(std::uint16_t port) {
    const sockaddr_in address = loopback(port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                   ::listen(fd, 8) == 0
               ? fd
               : -1;
  }
  static int connected(std::uint16_t port) {
    const sockaddr_in address = loopback(port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? fd
                                                                                           : -1;
  }
  static bool send_sockets(int to) {
    const bool moved = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (!moved || !bring_up_loopback()) {
      return false;
    }
    const int server = listening(kPort);
    const int other = listening(kPort + 1);
    const std::array<int, kCount> sockets = {connected(kPort),
                                             connected(kPort + 1),
                                             server,
                                             other,
                                             ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                                             ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
                                             ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    return send_with(to, "s", sockets, 0) == 1;
  }

  std::vector<UniqueFd> sockets_;
};

TEST_F(OtherNetwork, AConnectionToThePortIsTaken) {
  auto taken = begin_with(answer(0), {socket(kGood)});
  ASSERT_TRUE(taken.ok()) << taken.error().to_string();
  auto both = StreamAndGuest::make();
  EXPECT_TRUE(Port(std::move(both.stream), kPort, no_other).finish(taken.value()).ok());
}

TEST_F(OtherNetwork, OneToAnotherPortIsRefused) {
  auto taken = begin_with(answer(0), {socket(kOtherPort)});
  ASSERT_TRUE(taken.ok()) << taken.error().to_string();
  auto both = StreamAndGuest::make();
  const Status finished = Port(std::move(both.stream), kPort, no_other).finish(taken.value());
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().code, Code::kDenied);
}

TEST_F(OtherNetwork, WhatIsNoAnswerIsRefusedWhateverComesWithIt) {
  const int fd = socket(kGood);
  const std::vector<std::pair<std::string, std::vector<int>>> hostile = {
      {answer(0), {}},               // a success without a socket
      {answer(0), {fd, fd}},         // with two
      {answer(ECONNREFUSED), {fd}},  // a failure with one
      {answer(1U << 20), {}},        // no error number
      {answer(0, 7), {fd}},          // to another question
      {FakeGuest::frame(FrameType::kOutput, std::string(4, '\0')), {fd}},
      {std::string(16, '\xff'), {fd}},
  };
  for (const auto& [bytes, descriptors] : hostile) {
    const auto taken = begin_with(bytes, descriptors);
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, Code::kDenied) << taken.error().to_string();
  }
}

TEST_F(OtherNetwork, WhatIsNoTcpConnectionOfThatFamilyIsRefused) {
  for (const Kind kind : {kListening, kDatagrams, kSix, kLocal}) {
    const auto taken = begin_with(answer(0), {socket(kind)});
    ASSERT_FALSE(taken.ok()) << kind;
    EXPECT_EQ(taken.error().code, Code::kDenied);
  }
  const UniqueFd file(::memfd_create("x", MFD_CLOEXEC));
  EXPECT_FALSE(begin_with(answer(0), {file.get()}).ok());
}

TEST(Port, ASocketOfTheHostsOwnNetworkIsRefused) {
  const UniqueFd own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto taken = begin_with(answer(0), {own.get()});
  ASSERT_FALSE(taken.ok()) << "before Linux 5.14 the kernel does not tell";
  EXPECT_EQ(taken.error().code, Code::kDenied);
}

}  // namespace
}  // namespace carrel::sandbox
