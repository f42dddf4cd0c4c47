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

// Carries bytes from one connection to another until the first has ended, and then ends the second
// in that direction. False: one of them failed, or `spend` said so.
Task<bool> pump(Watched& from, Watched& to, const Spend& spend,
                Carrying carrying = Carrying::kQuick);

}  // namespace carrel::egress
