#include "egress/pump.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
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

// Everything that is in the pipe. False: the socket failed.
Task<bool> empty_pipe(Pipe& pipe, Watched& to, std::size_t size, const Patience& patience) {
  while (size > 0) {
    const ssize_t n = ::splice(pipe.out.get(), nullptr, to.fd(), nullptr, size, kFlags);
    if (n > 0) {
      size -= static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      const Deadline until = patience.until();
      const Woken woken = co_await to.writable(until);
      if (woken == Woken::kLate) {
        co_return false;
      }
    } else if (n == 0 || errno != EINTR) {
      co_return false;
    }
  }
  co_return true;
}

Task<Ended> move(Watched& from, Watched& to, const Spend& spend, const Patience& patience,
                 Pipe& pipe) {
  for (;;) {
    const ssize_t n = ::splice(from.fd(), nullptr, pipe.in.get(), nullptr, kPipeSize, kFlags);
    if (n == 0) {
      co_return Ended::kWhole;
    }
    if (n < 0) {
      if (errno == EAGAIN) {
        const Deadline until = patience.until();
        const Woken woken = co_await from.readable(until);
        if (woken == Woken::kLate) {
          co_return Ended::kBroken;
        }
      } else if (errno != EINTR) {
        co_return Ended::kBroken;
      }
      continue;
    }
    const auto size = static_cast<std::size_t>(n);
    if (!spend(size)) {
      co_return Ended::kBroken;
    }
    const bool sent = co_await empty_pipe(pipe, to, size, patience);
    if (!sent) {
      co_return Ended::kBroken;
    }
  }
}

// As write_whole(), with a limit that may come while it waits.
Task<bool> write_rest(Watched& to, Bytes bytes, const Patience& patience) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      const Deadline until = patience.until();
      const Woken woken = co_await to.writable(until);
      if (woken == Woken::kLate) {
        co_return false;
      }
    } else if (errno != EINTR) {
      co_return false;
    }
  }
  co_return true;
}

// kNotYet after `most` bytes. A connection has memory of its own only for what could not be sent at
// once. The calls are made here, and not in coroutines of their own: for short messages that is what
// it costs.
Task<Ended> copy(Watched& from, Watched& to, const Spend& spend, const Patience& patience,
                 std::uint64_t most) {
  const std::span<std::uint8_t> buffer = from.loop().scratch();
  std::uint64_t carried = 0;
  while (carried < most) {
    const ssize_t n = ::recv(from.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n == 0) {
      co_return Ended::kWhole;
    }
    if (n < 0) {
      if (errno == EAGAIN) {
        const Deadline until = patience.until();
        const Woken woken = co_await from.readable(until);
        if (woken == Woken::kLate) {
          co_return Ended::kBroken;
        }
      } else if (errno != EINTR) {
        co_return Ended::kBroken;
      }
      continue;
    }
    const auto size = static_cast<std::size_t>(n);
    if (!spend(size)) {
      co_return Ended::kBroken;
    }
    const ssize_t sent = ::send(to.fd(), buffer.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < n) {
      const std::size_t done = sent < 0 ? 0 : static_cast<std::size_t>(sent);
      const Bytes unsent = Bytes(buffer).subspan(done, size - done);
      const std::vector<std::uint8_t> rest(unsent.begin(), unsent.end());
      const bool whole = co_await write_rest(to, rest, patience);
      if (!whole) {
        co_return Ended::kBroken;
      }
    }
    carried += size;
    if (size < buffer.size() && !from.ending()) {
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
  Ended ended = co_await copy(from, to, spend, patience, most);
  if (ended == Ended::kNotYet) {
    Pipe pipe;
    if (pipe.open()) {
      ended = co_await move(from, to, spend, patience, pipe);
    } else {
      ended = co_await copy(from, to, spend, patience, kEverything);
    }
  }
  if (ended == Ended::kWhole) {
    ::shutdown(to.fd(), SHUT_WR);
  }
  co_return ended == Ended::kWhole;
}

}  // namespace carrel::egress
