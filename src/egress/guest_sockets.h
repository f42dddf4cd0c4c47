#pragma once

#include "base/result.h"
#include "egress/loop.h"
#include "egress/room.h"

namespace carrel::egress {

// Asks a sandbox's guest, at the other end of this connection, for the sockets of its network.
// CRITICAL: what comes is checked: sockets of the right kinds at the right addresses, all in one
// network that is not ours.
Task<Result<RoomSockets>> take_sockets(Watched& guest, std::string id);

}  // namespace carrel::egress
