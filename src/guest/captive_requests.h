#pragma once

#include <cstdint>

#include "guest/state.h"

namespace carrel::guest {

// Makes the sockets of the captive network and gives them to the client, together with the answer
// to its request. The guest keeps none. False when the request makes no sense.
bool hand_out_sockets(Guest& guest, std::uint32_t client, std::uint32_t channel);

}  // namespace carrel::guest
