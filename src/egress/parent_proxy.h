#pragma once

#include "base/result.h"
#include "egress/io.h"
#include "egress/upstream.h"

namespace carrel::egress {

// Has the proxy at the other end connect to that host, whose name it is told as it is. Once this is
// done everything on the connection is the host's: not a byte of it is read here.
Task<Status> ask_parent(Watched& connection, ParentProxy proxy, policy::Host host,
                        std::uint16_t port, Deadline deadline);

}  // namespace carrel::egress
