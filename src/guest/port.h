#pragma once

#include <cstdint>
#include <string_view>

#include "guest/state.h"

namespace carrel::guest {

// Begins a connection to a port of the sandbox's own loopback and gives its socket to the client,
// who waits for it: the guest never does. False when the request makes no sense.
bool hand_out_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                         std::string_view payload);

// Has the client's connection become one to such a port: a process of the workload's carries what
// comes, and the client is none any more. False when the request makes no sense.
bool relay_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                      std::string_view payload);

}  // namespace carrel::guest
