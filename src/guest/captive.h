#pragma once

#include <cstdint>

#include "guest/failure.h"
#include "guest/state.h"
#include "protocol/boot.h"

namespace carrel::guest {

// Makes the network that this process is in a captive one, if the sandbox is to have one. Needs
// CAP_NET_ADMIN over it. Until somebody outside holds its sockets, nothing answers in it.
bool make_captive(const protocol::Boot& boot, Failure& failure);

// Makes the sockets of the captive network and gives them to the client, together with the answer to
// its request. The guest keeps none. False when the request makes no sense.
bool hand_out_sockets(Guest& guest, std::uint32_t client, std::uint32_t channel);

}  // namespace carrel::guest
