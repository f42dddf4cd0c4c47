#pragma once

#include <memory>

#include "egress/room.h"

namespace carrel::egress {

// Answers lookups of a sandbox from its policy alone. CRITICAL: no lookup is ever passed on, so
// that nothing can be told to anybody by asking.
Task<void> serve_dns_datagrams(std::shared_ptr<Room> room, std::shared_ptr<Watched> socket);
Task<void> serve_dns_stream(std::shared_ptr<Room> room, UniqueFd connection);
// Datagrams of a machine, one after the other on a connection and each answered in its turn, if
// only with nothing.
Task<void> serve_dns_carried(std::shared_ptr<Room> room, UniqueFd connection);

}  // namespace carrel::egress
