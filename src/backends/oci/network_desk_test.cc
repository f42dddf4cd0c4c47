#include "backends/oci/network_desk.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/unix_socket.h"
#include "guest/network.h"
#include "kernel/captive_ports.h"
#include "kernel/network_cookie.h"
#include "protocol/frame.h"
#include "protocol/message.h"

namespace carrel::oci {
namespace {

using protocol::FrameType;

std::string frame(FrameType type, std::string_view payload) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), 1, type}, head);
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()).append(payload);
}

std::string request() { return frame(FrameType::kHello, "who") + frame(FrameType::kNetwork, {}); }

struct Heard {
  FrameType type{};
  std::string payload;
  std::vector<UniqueFd> descriptors;
};

// What comes next; of no type: nothing did.
Heard hear(int fd) {
  std::array<char, 512> buffer{};
  Heard heard;
  const ssize_t n = receive_with(fd, buffer, heard.descriptors, 0);
  protocol::FrameHeader header;
  if (n >= static_cast<ssize_t>(protocol::kHeaderSize) &&
      protocol::parse_header(
          std::span<const unsigned char, protocol::kHeaderSize>(
              reinterpret_cast<const unsigned char*>(buffer.data()), protocol::kHeaderSize),
          buffer.size(), header)) {
    heard.type = header.type;
    heard.payload.assign(buffer.data() + protocol::kHeaderSize,
                         static_cast<std::size_t>(n) - protocol::kHeaderSize);
  }
  return heard;
}

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0
             ? ntohs(address.sin_port)
             : std::uint16_t{0};
}

std::uint32_t number_at(const std::string& payload, std::size_t at) {
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(payload.data()) + at, payload.size() - at});
  return reader.u32();
}

// A desk in a network of its own, by a process of this one, and a way to it.
class DeskTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    here_.reset(ends[0]);
    const UniqueFd there(ends[1]);
    const timeval limit{10, 0};
    ::setsockopt(here_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    desk_ = ::fork();
    if (desk_ == 0) {
      const bool moved =
          ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
      if (!moved || !guest::bring_up_loopback()) {
        ::_exit(2);
      }
      while (answer_for_network(there.get())) {
      }
      ::_exit(0);
    }
  }
  void TearDown() override {
    if (desk_ > 0) {
      ::kill(desk_, SIGKILL);
      ::waitpid(desk_, nullptr, 0);
    }
  }
  [[nodiscard]] bool ask(const std::string& text) const {
    return ::send(here_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  UniqueFd here_;
  pid_t desk_ = 0;
};

TEST_F(DeskTest, TheSocketsAreOfItsNetworkAndOfNoOther) {
  ASSERT_TRUE(ask(request()));
  const Heard welcome = hear(here_.get());
  if (welcome.type != FrameType::kWelcome) {
    GTEST_SKIP() << "no namespaces here";
  }
  EXPECT_EQ(welcome.payload, "who");
  const Heard sockets = hear(here_.get());
  ASSERT_EQ(sockets.type, FrameType::kNetworkSockets);
  ASSERT_EQ(sockets.payload.size(), 8U);
  EXPECT_EQ(number_at(sockets.payload, 0), 0U);
  const std::uint32_t present = number_at(sockets.payload, 4);
  EXPECT_EQ(present & protocol::kNeededSockets, protocol::kNeededSockets);
  ASSERT_GE(sockets.descriptors.size(), 4U);
  EXPECT_EQ(port_of(sockets.descriptors.front().get()), kernel::kCaptiveTcpPort);
  for (const UniqueFd& socket : sockets.descriptors) {
    EXPECT_NE(kernel::network_of(socket.get()), kernel::own_network());
  }
}

TEST_F(DeskTest, WhoComesSecondIsToldThatTheyAreTaken) {
  ASSERT_TRUE(ask(request()));
  if (hear(here_.get()).type != FrameType::kWelcome) {
    GTEST_SKIP() << "no namespaces here";
  }
  Heard first = hear(here_.get());
  ASSERT_EQ(number_at(first.payload, 0), 0U);
  ASSERT_TRUE(ask(request()));
  EXPECT_EQ(hear(here_.get()).type, FrameType::kWelcome);
  const Heard second = hear(here_.get());
  EXPECT_EQ(number_at(second.payload, 0), static_cast<std::uint32_t>(EADDRINUSE));
  EXPECT_TRUE(second.descriptors.empty());
}

TEST_F(DeskTest, WhenTheyAreLetGoTheNextOneHasThem) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(ask(request()));
    if (hear(here_.get()).type != FrameType::kWelcome) {
      GTEST_SKIP() << "no namespaces here";
    }
    const Heard sockets = hear(here_.get());
    EXPECT_EQ(number_at(sockets.payload, 0), 0U) << i;
  }
}

TEST_F(DeskTest, WhatIsNoRequestGetsNothing) {
  ASSERT_TRUE(ask(frame(FrameType::kHello, "who") + frame(FrameType::kShutdown, "1234")));
  const Heard welcome = hear(here_.get());
  if (welcome.type != FrameType::kWelcome) {
    GTEST_SKIP() << "no namespaces here";
  }
  const Heard more = hear(here_.get());
  EXPECT_NE(more.type, FrameType::kNetworkSockets);
  EXPECT_TRUE(more.descriptors.empty());
  int status = -1;
  EXPECT_EQ(::waitpid(desk_, &status, 0), desk_);
  desk_ = 0;
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace carrel::oci
