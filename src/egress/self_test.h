#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "egress/room.h"

namespace carrel::egress {

// Sockets of a sandbox's network that nothing was done with.
struct Probes {
  UniqueFd datagram;
  UniqueFd stream;
};

// What whoever made the network ahead has tried already: that connections get to its sockets, which
// know where they were meant to go.
enum class Tried { kNothing, kConnections };

// Tries from inside a sandbox that is served, and that no command has run in, whether its network
// is what its policy says: a name that is allowed for this moment is found, one that is not allowed
// is not, a metadata service is refused, and datagrams go nowhere. An error names what did not
// hold. Nothing of it is counted or logged.
Task<Status> prove(Room& room, Probes probes, Tried tried = Tried::kNothing);

}  // namespace carrel::egress
