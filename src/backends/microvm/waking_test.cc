#include "backends/microvm/waking.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "protocol/awakening.h"

namespace carrel::microvm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The machine is a thread at the other end of the line, and its VMM this process.
class WakingTest : public testing::Test {
 protected:
  WakingTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    line_.reset(ends[0]);
    machine_.reset(ends[1]);
    ::fcntl(line_.get(), F_SETFL, O_NONBLOCK);
    vmm_.reset(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  }

  Sleeper sleeper(milliseconds patience) const {
    return {line_.get(), vmm_.get(), steady_clock::now() + patience};
  }
  std::string hear(std::size_t size) const {
    std::string text(size, '\0');
    const ssize_t n = ::recv(machine_.get(), text.data(), size, MSG_WAITALL);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }
  bool hear(protocol::Awakening& words) const {
    const std::string text = hear(protocol::kAwakeningSize);
    return text.size() == protocol::kAwakeningSize &&
           protocol::parse_awakening(reinterpret_cast<const unsigned char*>(text.data()), words);
  }
  void say(std::string_view text) const {
    EXPECT_EQ(::send(machine_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  UniqueFd line_;
  UniqueFd machine_;
  UniqueFd vmm_;
};

TEST_F(WakingTest, EachMachineIsWokenWithBytesOfItsOwnAndTheTime) {
  std::string seeds[2];
  for (std::string& seed : seeds) {
    protocol::Awakening words;
    std::string terms;
    std::thread machine([&] {
      protocol::Awakening ask;
      EXPECT_TRUE(hear(ask));
      EXPECT_EQ(ask.kind, protocol::AwakeningKind::kAsk);
      say(protocol::kStillWaiting);
      EXPECT_TRUE(hear(words));
      EXPECT_EQ(hear(2), std::string("\5\0", 2));
      terms = hear(5);
      say(protocol::kAwoken);
      say("more");
    });
    EXPECT_EQ(wake(sleeper(milliseconds(10'000)), "once\n"), Woken::kYes);
    machine.join();
    EXPECT_EQ(terms, "once\n");
    EXPECT_EQ(words.kind, protocol::AwakeningKind::kWake);
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    EXPECT_NEAR(static_cast<double>(words.wall_ns) / 1e9, now, 5.0);
    seed.assign(reinterpret_cast<const char*>(words.seed), sizeof words.seed);
    // What comes after the answer is somebody else's.
    std::array<char, 8> rest{};
    EXPECT_EQ(::read(line_.get(), rest.data(), rest.size()), 4);
  }
  EXPECT_NE(seeds[0], seeds[1]);
  EXPECT_NE(seeds[0], std::string(protocol::kAwakeningSeed, '\0'));
}

TEST_F(WakingTest, AnotherAnswerIsNone) {
  say("Waiting\n");
  EXPECT_EQ(wake(sleeper(milliseconds(5000)), "once\n"), Woken::kEnded);
}

TEST_F(WakingTest, WhoSaysNothingIsLate) {
  say("wait");
  EXPECT_EQ(await_sleeper(sleeper(milliseconds(50))), Woken::kLate);
}

TEST_F(WakingTest, WhoHasEndedIsNotWaitedFor) {
  machine_.reset();
  EXPECT_EQ(await_sleeper(sleeper(milliseconds(60'000))), Woken::kEnded);
}

}  // namespace
}  // namespace carrel::microvm
