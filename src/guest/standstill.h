#pragma once

#include <cstdint>

#include "guest/state.h"

namespace carrel::guest {

// Where no control group can freeze the workload, the guest stops it with signals, for whoever
// reads its files meanwhile. It goes on when that client says so or leaves.

// 0 when everybody stands, or a negative errno, and then everybody goes on.
int begin_standstill(Guest& guest, std::uint32_t client);
void end_standstill(Guest& guest);

// A pause stays when the client leaves. Meanwhile no command can be started and the time of those
// that run does not pass; the lease's does. Both return 0 or a negative errno, and neither minds
// being asked twice.
int begin_pause(Guest& guest, protocol::Standstill how);
int end_pause(Guest& guest);

}  // namespace carrel::guest
