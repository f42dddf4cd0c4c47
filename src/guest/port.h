#pragma once

#include <cstdint>
#include <string_view>

#include "guest/state.h"

namespace carrel::guest {

// Begins a connection to a port of the sandbox's own loopback and gives its socket to the client,
// who waits for it: the guest never does. False when the request makes no sense.
// Whether somebody accepts connections to a port of a loopback address.
bool is_listening(std::uint16_t port);

bool hand_out_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                         std::string_view payload);

}  // namespace carrel::guest
