#include "egress/pump.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "egress/io.h"

namespace carrel::egress {
namespace {

using std::chrono::milliseconds;

// Two connections: one side of each is in the test, and bytes go from `from` to `to`.
class PumpTest : public testing::Test {
 protected:
  PumpTest() {
    std::array<int, 2> first{};
    std::array<int, 2> second{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, first.data()),
              0);
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, second.data()),
              0);
    sender_ = UniqueFd(first[0]);
    from_ = std::make_unique<Watched>(loop_, UniqueFd(first[1]));
    to_ = std::make_unique<Watched>(loop_, UniqueFd(second[0]));
    receiver_ = UniqueFd(second[1]);
  }

  Task<void> carry() {
    const Spend spend = [](std::uint64_t) { return true; };
    whole_ = co_await pump(*from_, *to_, spend, patience_);
    finish();
  }
  Task<void> lose_patience() {
    co_await loop_.sleep(in(milliseconds(20)));
    patience_.longest = milliseconds(50);
    from_->rouse();
    to_->rouse();
    finish();
  }
  void finish() {
    if (++finished_ == 2) {
      loop_.stop();
    }
  }
  void run() {
    spawn(carry());
    spawn(lose_patience());
    ASSERT_TRUE(loop_.run().ok());
  }

  Loop loop_;
  Patience patience_;
  std::unique_ptr<Watched> from_;
  std::unique_ptr<Watched> to_;
  UniqueFd sender_;
  UniqueFd receiver_;
  bool whole_ = true;
  int finished_ = 0;
};

TEST_F(PumpTest, OneThatWaitsForBytesEndsWhenThereIsALimit) {
  ASSERT_EQ(::send(sender_.get(), "word", 4, 0), 4);
  run();
  EXPECT_FALSE(whole_);
}

TEST_F(PumpTest, OneWhoseReceiverTakesNothingEndsWhenThereIsALimit) {
  const std::string much(4U << 20, 'x');
  while (::send(sender_.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
  }
  run();
  EXPECT_FALSE(whole_);
}

TEST_F(PumpTest, OneThatEndsBeforeTheLimitIsWhole) {
  ASSERT_EQ(::send(sender_.get(), "word", 4, 0), 4);
  sender_.reset();
  run();
  EXPECT_TRUE(whole_);
  std::array<char, 8> got{};
  EXPECT_EQ(::recv(receiver_.get(), got.data(), got.size(), 0), 4);
}

}  // namespace
}  // namespace carrel::egress
