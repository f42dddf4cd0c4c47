#include "egress/pump.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "egress/io.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kPiece = 64U << 10;
constexpr std::uint64_t kLong = 1U << 20;  // more than this is worth a pipe
constexpr int kPipeSize = 512 << 10;

// What is between two sockets while bytes are moved and not copied.
struct Pipe {
  UniqueFd out;
  UniqueFd in;

  // Nothing where the kernel gives none, or only a small one.
  bool open() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
      return false;
    }
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
    (void)::fcntl(in.get(), F_SETPIPE_SZ, kPipeSize);
    return ::fcntl(in.get(), F_GETPIPE_SZ) >= static_cast<int>(kPiece);
  }
};

constexpr unsigned kFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

enum class Ended { kWhole, kBroken, kNotYet };

// Through the memory of this process. A connection has memory of its own only for what could not be
// sent at once.
class Copying {
 public:
  explicit Copying(Loop& loop) : buffer_(loop.scratch()) {}

  // As recv() and send() say it.
  ssize_t take(int from) {
    const ssize_t n = ::recv(from, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    left_ = Bytes(buffer_).first(n > 0 ? static_cast<std::size_t>(n) : 0);
    return n;
  }
  ssize_t give(int to) {
    const ssize_t n = ::send(to, left_.data(), left_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    left_ = left_.subspan(n > 0 ? static_cast<std::size_t>(n) : 0);
    return n;
  }
  [[nodiscard]] bool has_given_all() const { return left_.empty(); }
  // Whether nothing more can be there.
  [[nodiscard]] bool has_taken_all(std::size_t size) const { return size < buffer_.size(); }
  // Others use the buffer while one waits.
  void keep() {
    if (rest_.empty()) {
      rest_.assign(left_.begin(), left_.end());
      left_ = rest_;
    }
  }
  void forget() { rest_ = {}; }

 private:
  std::span<std::uint8_t> buffer_;
  std::vector<std::uint8_t> rest_;
  Bytes left_;
};

// From one socket to the other by the kernel.
class Moving {
 public:
  explicit Moving(Pipe pipe) : pipe_(std::move(pipe)) {}

  ssize_t take(int from) {
    const ssize_t n = ::splice(from, nullptr, pipe_.in.get(), nullptr, kPipeSize, kFlags);
    left_ = n > 0 ? static_cast<std::size_t>(n) : 0;
    return n;
  }
  ssize_t give(int to) {
    const ssize_t n = ::splice(pipe_.out.get(), nullptr, to, nullptr, left_, kFlags);
    left_ -= n > 0 ? static_cast<std::size_t>(n) : 0;
    return n;
  }
  [[nodiscard]] bool has_given_all() const { return left_ == 0; }
  [[nodiscard]] static bool has_taken_all(std::size_t /*size*/) { return false; }
  void keep() {}
  void forget() {}

 private:
  Pipe pipe_;
  std::size_t left_ = 0;
};

// kNotYet after `most` bytes. The calls are made here, and not in coroutines of their own: for
// short messages that is what it costs.
template <typename Way>
Task<Ended> carry(Watched& from, Watched& to, const Spend& spend, const Patience& patience,
                  Way& way, std::uint64_t most) {
  std::uint64_t carried = 0;
  while (carried < most) {
    const ssize_t n = way.take(from.fd());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0 && (n == 0 || errno != EAGAIN)) {
      co_return n == 0 ? Ended::kWhole : Ended::kBroken;
    }
    const std::size_t size = n > 0 ? static_cast<std::size_t>(n) : 0;
    if (size > 0 && !spend(size)) {
      co_return Ended::kBroken;
    }
    while (!way.has_given_all()) {
      const ssize_t given = way.give(to.fd());
      if (given < 0 && errno == EAGAIN) {
        way.keep();
        const Deadline until = patience.until();
        const Woken woken = co_await to.writable(until);
        if (woken == Woken::kLate) {
          co_return Ended::kBroken;
        }
      } else if (given == 0 || (given < 0 && errno != EINTR)) {
        co_return Ended::kBroken;
      }
    }
    way.forget();
    carried += size;
    if (size == 0 || (way.has_taken_all(size) && !from.ending())) {
      const Deadline until = patience.until();
      const Woken woken = co_await from.readable(until);
      if (woken == Woken::kLate) {
        co_return Ended::kBroken;
      }
    } else if (from.has_had_its_turn()) {
      co_await from.loop().turn();
    }
  }
  co_return Ended::kNotYet;
}

}  // namespace

Task<bool> pump(Watched& from, Watched& to, const Spend& spend, const Patience& patience,
                Carrying carrying) {
  constexpr std::uint64_t kEverything = UINT64_MAX;
  const std::uint64_t most = carrying == Carrying::kQuick ? kLong : kEverything;
  Copying copying(from.loop());
  Ended ended = co_await carry<Copying>(from, to, spend, patience, copying, most);
  if (ended == Ended::kNotYet) {
    Pipe pipe;
    if (pipe.open()) {
      Moving moving(std::move(pipe));
      ended = co_await carry<Moving>(from, to, spend, patience, moving, kEverything);
    } else {
      ended = co_await carry<Copying>(from, to, spend, patience, copying, kEverything);
    }
  }
  if (ended == Ended::kWhole) {
    ::shutdown(to.fd(), SHUT_WR);
  }
  co_return ended == Ended::kWhole;
}

}  // namespace carrel::egress
