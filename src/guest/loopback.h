#pragma once

#include <cstdint>

#include "protocol/message.h"

namespace carrel::guest {

// Begins a connection to a port of the sandbox's own loopback: a socket that does not block, or a
// negative errno. Nobody waits for it here.
int begin_connection(const protocol::Connect& wanted);

// Whether somebody accepts connections to a port of a loopback address.
bool is_listening(std::uint16_t port);

}  // namespace carrel::guest
