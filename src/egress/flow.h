#pragma once

#include <memory>

#include "egress/room.h"

namespace carrel::egress {

// How a connection of a sandbox comes to us.
enum class Entrance {
  kRedirected,  // the program meant another address
  kProxy,       // the program asks a proxy: HTTP or SOCKS5
  kDns,
};

// Takes connections from a listening socket until the room is closed.
Task<void> accept_flows(std::shared_ptr<Room> room, std::shared_ptr<Watched> listener,
                        Entrance entrance);

// Takes connections that the porter of a machine hands over, until it does no more. What comes is
// hostile: whatever is not as protocol/outward.h says ends it.
Task<void> take_flows(std::shared_ptr<Room> room, std::shared_ptr<Watched> porter);
// Waits until the machine has a network.
Task<Status> await_machine(Watched& porter);

}  // namespace carrel::egress
