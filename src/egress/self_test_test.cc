#include "egress/self_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "egress/io.h"
#include "kernel/captive_network.h"

namespace carrel::egress {
namespace {

// What a network lacks of a captive one.
enum class Lacks { kNothing, kRules, kServer };

bool tell_kernel(int protocol, const std::string& messages) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  std::array<char, 1024> answer{};
  nlmsgerr error{};
  if (::send(fd.get(), messages.data(), messages.size(), 0) < 0 ||
      ::recv(fd.get(), answer.data(), answer.size(), 0) <
          static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof error)) {
    return false;
  }
  std::memcpy(&error, answer.data() + sizeof(nlmsghdr), sizeof error);
  return error.error == 0;
}

bool enter_captive_network(Lacks lacks) {
  const bool made = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const kernel::CaptiveNetwork network = kernel::captive_network();
  return made && ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0 &&
         tell_kernel(NETLINK_ROUTE, network.routes) &&
         (lacks == Lacks::kRules || tell_kernel(NETLINK_NETFILTER, network.rules));
}

UniqueFd bound(int type, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const SocketAddress here =
      SocketAddress::of(policy::IpAddress::from(policy::IpAddress::V4{127, 0, 0, 1}), port);
  EXPECT_EQ(::bind(fd.get(), here.get(), here.size), 0);
  if (type == SOCK_STREAM) {
    EXPECT_EQ(::listen(fd.get(), 8), 0);
  }
  return fd;
}

Task<void> try_it(Room& room, Status& result) {
  Probes probes{UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
                UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
  result = co_await prove(room, std::move(probes));
  room.service().loop.stop();
}

// Empty: it holds.
std::string verdict_in(Lacks lacks, const std::string& directory) {
  if (!enter_captive_network(lacks)) {
    return "cannot make the network";
  }
  const UniqueFd place(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Service service;
  auto policy = policy::parse_network({"network", "allow=example.org"});
  auto room = std::make_shared<Room>(service, "test", policy.value(),
                                     std::move(SyntheticNames::open(place.get()).value()),
                                     std::move(KeptUsage::open(place.get()).value()));
  RoomSockets sockets;
  if (lacks != Lacks::kServer) {
    sockets[protocol::kTcpSocket] = bound(SOCK_STREAM, 61001);
    sockets[protocol::kDnsSocket] = bound(SOCK_DGRAM, 61053);
  }
  room->open(std::move(sockets));
  Status result;
  spawn(try_it(*room, result));
  EXPECT_TRUE(service.loop.run().ok());
  return result.ok() ? "" : result.error().message;
}

// In a process of its own, which has the network.
std::string verdict(Lacks lacks) {
  std::string directory = testing::TempDir() + "/provedXXXXXX";
  EXPECT_NE(::mkdtemp(directory.data()), nullptr);
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = verdict_in(lacks, directory);
    (void)!::write(pipe[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string text(500, '\0');
  const ssize_t n = ::read(pipe[0], text.data(), text.size());
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(directory);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

TEST(SelfTest, ACaptiveNetworkThatIsServedHolds) { EXPECT_EQ(verdict(Lacks::kNothing), ""); }

TEST(SelfTest, ANetworkWithoutItsRulesDoesNot) {
  EXPECT_NE(verdict(Lacks::kRules).find("does not hold"), std::string::npos);
}

TEST(SelfTest, ANetworkThatNobodyServesDoesNot) {
  EXPECT_NE(verdict(Lacks::kServer).find("does not hold"), std::string::npos);
}

}  // namespace
}  // namespace carrel::egress
