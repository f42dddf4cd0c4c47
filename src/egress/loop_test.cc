#include "egress/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "egress/io.h"

namespace carrel::egress {
namespace {

struct Pair {
  explicit Pair(Loop& loop) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    one = std::make_unique<Watched>(loop, UniqueFd(ends[0]));
    other = std::make_unique<Watched>(loop, UniqueFd(ends[1]));
  }
  std::unique_ptr<Watched> one;
  std::unique_ptr<Watched> other;
};

Task<void> send_all(Watched& to, std::string text) {
  const bool sent = co_await write_whole(to, bytes_of(text));
  EXPECT_TRUE(sent);
  ::shutdown(to.fd(), SHUT_WR);
}

Task<void> receive_all(Loop& loop, Watched& from, std::string& text) {
  std::array<std::uint8_t, 1000> buffer;
  for (;;) {
    const auto n = co_await read_some(from, buffer);
    if (n <= 0) {
      break;
    }
    text.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(n));
  }
  loop.stop();
}

TEST(LoopTest, BytesThatDoNotFitAtOnceArriveWholeAndInOrder) {
  Loop loop;
  Pair pair(loop);
  std::string sent;
  for (int i = 0; i < 200'000; ++i) {
    sent += std::to_string(i);
  }
  std::string got;
  spawn(receive_all(loop, *pair.other, got));
  spawn(send_all(*pair.one, sent));
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(got, sent);
}

Task<void> read_late(Loop& loop, Watched& from, std::ptrdiff_t& result) {
  std::array<std::uint8_t, 10> buffer;
  result = co_await read_some(from, buffer, in(std::chrono::milliseconds(20)));
  loop.stop();
}

TEST(LoopTest, WhoWaitsTooLongIsWoken) {
  Loop loop;
  Pair pair(loop);
  std::ptrdiff_t result = 0;
  spawn(read_late(loop, *pair.one, result));
  ASSERT_TRUE(loop.run().ok());
  EXPECT_EQ(result, -ETIMEDOUT);
}

Task<void> read_once(Loop& loop, std::unique_ptr<Watched> from, bool& ended) {
  std::array<std::uint8_t, 10> buffer;
  const auto n = co_await read_some(*from, buffer);
  ended = n <= 0;
  loop.stop();
}

Task<void> shut_soon(Loop& loop, Watched& watched) {
  co_await loop.sleep(in(std::chrono::milliseconds(5)));
  watched.shut();
}

// The coroutine that is woken owns what it waited for, and is gone when shut() goes on.
TEST(LoopTest, AConnectionThatIsShutWakesItsReaderEvenIfThatDestroysIt) {
  Loop loop;
  Pair pair(loop);
  bool ended = false;
  Watched& watched = *pair.one;
  spawn(read_once(loop, std::move(pair.one), ended));
  spawn(shut_soon(loop, watched));
  ASSERT_TRUE(loop.run().ok());
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace carrel::egress
