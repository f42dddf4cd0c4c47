#include "guest/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <thread>

namespace carrel::guest {
namespace {

using protocol::FrameHeader;
using protocol::FrameType;

std::string frame(FrameType type, std::string_view payload, std::uint32_t channel = 1) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), channel, type}, head);
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()) +
         std::string(payload);
}

// A client of the guest and the host's end of its connection.
class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> fds{-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    client_.open(fds[0]);
    host_ = fds[1];
  }
  void TearDown() override {
    if (client_.used()) {
      client_.close();
    }
    ::close(host_);
  }

  void host_sends(std::string_view bytes) const {
    ASSERT_EQ(::send(host_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::string host_reads() const {
    std::string text;
    std::array<char, 65'536> buffer{};
    ssize_t n = 0;
    while ((n = ::recv(host_, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }
  bool next() { return client_.next(header_, payload_, broken_); }

  Client client_;
  int host_ = -1;
  FrameHeader header_;
  std::string_view payload_;
  bool broken_ = false;
};

TEST_F(ClientTest, FrameIsThereOnlyWithItsLastByte) {
  const std::string bytes = frame(FrameType::kStdin, "payload", 9);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(next()) << i;
    EXPECT_FALSE(broken_) << i;
    host_sends(std::string_view(bytes).substr(i, 1));
    ASSERT_TRUE(client_.fill());
  }
  ASSERT_TRUE(next());
  EXPECT_EQ(header_.type, FrameType::kStdin);
  EXPECT_EQ(header_.channel, 9U);
  EXPECT_EQ(payload_, "payload");
  EXPECT_FALSE(next());
}

TEST_F(ClientTest, FramesThatCameTogetherAreTakenOneByOne) {
  host_sends(frame(FrameType::kStdin, "one") + frame(FrameType::kKill, "") +
             frame(FrameType::kStdin, "three").substr(0, 14));
  ASSERT_TRUE(client_.fill());
  ASSERT_TRUE(next());
  EXPECT_EQ(payload_, "one");
  ASSERT_TRUE(next());
  EXPECT_EQ(header_.type, FrameType::kKill);
  EXPECT_FALSE(next());
  host_sends("ree");
  ASSERT_TRUE(client_.fill());
  ASSERT_TRUE(next());
  EXPECT_EQ(payload_, "three");
}

TEST_F(ClientTest, LargestFrameArrives) {
  std::string large(protocol::kMaxPayload, 'x');
  large.back() = 'y';
  const std::string bytes = frame(FrameType::kStart, large) + frame(FrameType::kKill, "");
  std::string_view rest = bytes;
  while (!next()) {
    ASSERT_FALSE(broken_);
    if (!rest.empty()) {
      const ssize_t n = ::send(host_, rest.data(), rest.size(), MSG_NOSIGNAL);
      rest.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
    ASSERT_TRUE(client_.fill());
  }
  EXPECT_TRUE(payload_ == large);
}

TEST_F(ClientTest, FrameOverTheLimitIsBroken) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({protocol::kMaxPayload + 1, 1, FrameType::kStart}, head);
  host_sends({reinterpret_cast<const char*>(head.data()), head.size()});
  ASSERT_TRUE(client_.fill());
  EXPECT_FALSE(next());
  EXPECT_TRUE(broken_);
}

TEST_F(ClientTest, ReservedFieldIsBroken) {
  std::string bytes = frame(FrameType::kKill, "");
  bytes[11] = 1;
  host_sends(bytes);
  ASSERT_TRUE(client_.fill());
  EXPECT_FALSE(next());
  EXPECT_TRUE(broken_);
}

TEST_F(ClientTest, ConnectionIsOverWhenTheHostClosesIt) {
  EXPECT_TRUE(client_.fill());
  ::shutdown(host_, SHUT_WR);
  EXPECT_FALSE(client_.fill());
}

TEST_F(ClientTest, SendIsOneFrameOfTwoPieces) {
  ASSERT_TRUE(client_.send(5, FrameType::kOutput, "head", "body"));
  ASSERT_TRUE(client_.send(6, FrameType::kExit, "alone"));
  EXPECT_TRUE(client_.has_output());
  EXPECT_TRUE(client_.flush());
  EXPECT_FALSE(client_.has_output());
  EXPECT_EQ(host_reads(),
            frame(FrameType::kOutput, "headbody", 5) + frame(FrameType::kExit, "alone", 6));
}

TEST_F(ClientTest, OutputLeavesRoomForFramesThatMustGetThrough) {
  const std::string body(16U << 10, 'o');
  std::size_t sent = 0;
  while (client_.send(1, FrameType::kOutput, "h", body)) {
    sent += protocol::kHeaderSize + 1 + body.size();
  }
  EXPECT_LE(sent, Client::kOutCapacity - Client::kReserve);
  EXPECT_LT(client_.room(), protocol::kHeaderSize + 1 + body.size());
  EXPECT_TRUE(client_.send(1, FrameType::kExit, std::string(4096, 'e')));
}

TEST_F(ClientTest, NothingIsQueuedBeyondTheCapacity) {
  const std::string body(1000, 'x');
  std::size_t queued = 0;
  while (client_.send(1, FrameType::kCommand, body)) {
    queued += protocol::kHeaderSize + body.size();
    ASSERT_LE(queued, Client::kOutCapacity);
  }
  EXPECT_GT(queued, Client::kOutCapacity - 2 * body.size());
  EXPECT_EQ(client_.room(), 0U);
  EXPECT_FALSE(client_.send(1, FrameType::kExit, std::string(Client::kOutCapacity, 'x')));
}

TEST_F(ClientTest, SlowHostGetsEverythingInOrder) {
  std::string expected;
  std::string got;
  for (int i = 0; i < 3000; ++i) {
    const std::string body = std::to_string(i) + std::string(997, 'b');
    while (!client_.send(2, FrameType::kOutput, "h", body)) {
      ASSERT_TRUE(client_.flush());
      got += host_reads();
    }
    expected += frame(FrameType::kOutput, "h" + body, 2);
  }
  while (client_.has_output()) {
    ASSERT_TRUE(client_.flush());
    got += host_reads();
  }
  got += host_reads();
  EXPECT_TRUE(got == expected);
}

TEST_F(ClientTest, FlushToAHostThatIsGoneEndsTheConnection) {
  ::shutdown(host_, SHUT_RD);
  ASSERT_TRUE(client_.send(1, FrameType::kExit, "x"));
  EXPECT_FALSE(client_.flush());
}

TEST_F(ClientTest, SlotCanBeUsedAgain) {
  host_sends("half a frame");
  ASSERT_TRUE(client_.fill());
  ASSERT_TRUE(client_.send(1, FrameType::kExit, "unsent"));
  client_.set_greeted();
  TearDown();
  EXPECT_FALSE(client_.used());
  SetUp();
  EXPECT_TRUE(client_.used());
  EXPECT_FALSE(client_.greeted());
  EXPECT_FALSE(client_.has_output());
  host_sends(frame(FrameType::kStdin, "fresh"));
  ASSERT_TRUE(client_.fill());
  ASSERT_TRUE(next());
  EXPECT_EQ(payload_, "fresh");
}

}  // namespace
}  // namespace carrel::guest
