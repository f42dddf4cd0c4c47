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

void refuse(Guest& guest, std::uint32_t client, std::uint32_t channel, protocol::Refusal refusal,
            int error_number, std::string_view text);

}  // namespace carrel::guest
