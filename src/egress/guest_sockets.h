#pragma once

#include "base/result.h"
#include "egress/loop.h"
#include "egress/room.h"

namespace carrel::egress {

// The sockets of a sandbox's network, as they came.
// CRITICAL: they are checked to be of the right kinds at the right addresses, and all in one
// network that is not ours.
Result<RoomSockets> check_sockets(std::vector<UniqueFd> descriptors, std::uint32_t present);

// Asks a sandbox's guest, at the other end of this connection, for them.
Task<Result<RoomSockets>> take_sockets(Watched& guest, std::string id);

}  // namespace carrel::egress
