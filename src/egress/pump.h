#pragma once

#include <cstdint>
#include <functional>

#include "egress/loop.h"

namespace carrel::egress {

// Told of bytes before they are passed on. False: they are not, and it is over.
using Spend = std::function<bool(std::uint64_t)>;

// How bytes get from one socket to the other.
enum class Carrying {
  kQuick,   // what is long does not pass through this process's memory
  kCopied,  // for a socket that somebody else holds as well, who could have a splice() block
};

// How long nothing may happen; without a limit until there is one. Whoever waits already is to be
// roused when that changes.
struct Patience {
  std::chrono::milliseconds longest = std::chrono::milliseconds::max();

  [[nodiscard]] Deadline until() const {
    return longest == std::chrono::milliseconds::max() ? kNever : in(longest);
  }
};

// Carries bytes from one connection to another until the first has ended, and then ends the second
// in that direction. False: one of them failed, nothing happened for too long, or `spend` said so.
Task<bool> pump(Watched& from, Watched& to, const Spend& spend, const Patience& patience,
                Carrying carrying = Carrying::kQuick);

}  // namespace carrel::egress
