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

}  // namespace carrel::egress
