#pragma once

#include <cstdint>

#include "guest/state.h"

namespace carrel::guest {

// Where no control group can freeze the workload, the guest stops it with signals, for whoever reads
// its files meanwhile. It goes on when that client says so or leaves.

// 0 when everybody stands, or a negative errno, and then everybody goes on.
int begin_standstill(Guest& guest, std::uint32_t client);
void end_standstill(Guest& guest);

}  // namespace carrel::guest
