#include "backends/microvm/waking.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string_view>

#include "protocol/awakening.h"

namespace carrel::microvm {

namespace {

using Clock = std::chrono::steady_clock;

Woken await(const Sleeper& sleeper, short events) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(sleeper.late - Clock::now());
    if (left.count() <= 0) {
      return Woken::kLate;
    }
    std::array<pollfd, 2> watched = {pollfd{sleeper.line, events, 0},
                                     pollfd{sleeper.vmm, POLLIN, 0}};
    const int timeout = static_cast<int>(std::min<long>(left.count(), 60'000));
    const int ready = ::poll(watched.data(), watched.size(), timeout);
    if (ready < 0 && errno != EINTR) {
      return Woken::kEnded;
    }
    if (ready > 0 && watched[1].revents != 0) {
      return Woken::kEnded;
    }
    if (ready > 0 && watched[0].revents != 0) {
      return Woken::kYes;
    }
  }
}

Woken write_line(const Sleeper& sleeper, std::string_view data) {
  while (!data.empty()) {
    if (const Woken ready = await(sleeper, POLLOUT); ready != Woken::kYes) {
      return ready;
    }
    const ssize_t n = ::send(sleeper.line, data.data(), data.size(), MSG_NOSIGNAL);
    if (n > 0) {
      data.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      return Woken::kEnded;
    }
  }
  return Woken::kYes;
}

// The machine says this and not a byte more: the rest of the line is the trunk's.
Woken hear(const Sleeper& sleeper, std::string_view expected) {
  std::array<char, protocol::kStillWaiting.size()> heard{};
  std::size_t size = 0;
  while (size < expected.size()) {
    if (const Woken ready = await(sleeper, POLLIN); ready != Woken::kYes) {
      return ready;
    }
    const ssize_t n = ::read(sleeper.line, heard.data() + size, expected.size() - size);
    if (n > 0) {
      size += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Woken::kEnded;
    }
  }
  return std::string_view(heard.data(), size) == expected ? Woken::kYes : Woken::kEnded;
}

std::string bytes_of(const protocol::Awakening& words) {
  std::array<unsigned char, protocol::kAwakeningSize> bytes{};
  protocol::write_awakening(words, bytes.data());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t wall_clock() {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Woken await_sleeper(const Sleeper& sleeper) {
  const Woken asked = write_line(sleeper, bytes_of({protocol::AwakeningKind::kAsk, 0, {}}));
  return asked == Woken::kYes ? hear(sleeper, protocol::kStillWaiting) : asked;
}

Woken wake(const Sleeper& sleeper, const std::string& terms) {
  if (const Woken waits = await_sleeper(sleeper); waits != Woken::kYes) {
    return waits;
  }
  protocol::Awakening words;
  words.kind = protocol::AwakeningKind::kWake;
  // CRITICAL: machines that go on from one snapshot differ by these alone.
  if (terms.size() > protocol::kMaxMachineTerms ||
      ::getrandom(words.seed, sizeof words.seed, 0) != static_cast<ssize_t>(sizeof words.seed)) {
    return Woken::kEnded;
  }
  words.wall_ns = wall_clock();
  std::string text = bytes_of(words);
  text.push_back(static_cast<char>(terms.size() & 0xff));
  text.push_back(static_cast<char>(terms.size() >> 8));
  const Woken told = write_line(sleeper, text + terms);
  return told == Woken::kYes ? hear(sleeper, protocol::kAwoken) : told;
}

}  // namespace carrel::microvm
