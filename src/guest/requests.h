#pragma once

#include <cstdint>
#include <string_view>

#include "guest/state.h"

// What clients ask for. Everything is checked before anything is done.
namespace carrel::guest {

// Does what a frame says; what it answers is queued. False when it is not a frame that this client
// may send now.
bool take_frame(Guest& guest, std::uint32_t client, const protocol::FrameHeader& header,
                std::string_view payload);

// Whether this connection can be given to a process of the workload's: nothing else is going on
// over it, and nobody depends on it.
bool may_have_worker(const Guest& guest, std::uint32_t client);

void refuse(Guest& guest, std::uint32_t client, std::uint32_t channel, protocol::Refusal refusal,
            int error_number, std::string_view text);

}  // namespace carrel::guest
