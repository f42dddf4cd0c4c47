#pragma once

#include <cstdint>
#include <vector>

#include "egress/room.h"

namespace carrel::egress {

// What went through a connection.
struct Carried {
  std::uint64_t out = 0;
  std::uint64_t in = 0;
};

// Carries bytes both ways until both sides have ended, one failed, or a budget is used up; then
// both are closed. `first` goes out before everything else.
Task<void> relay(Room& room, Watched& client, Watched& server, std::vector<std::uint8_t> first,
                 Carried& carried);

}  // namespace carrel::egress
