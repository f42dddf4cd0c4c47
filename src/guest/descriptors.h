#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "protocol/frame.h"

namespace carrel::guest {

inline constexpr std::size_t kMostDescriptors = 12;
inline constexpr std::size_t kMostBeside = 64;  // bytes of a payload that comes with descriptors

// Sends one frame with descriptors beside it, past the client's queue. Whether all of it went out.
bool send_with_descriptors(int client, const protocol::FrameHeader& header,
                           std::string_view payload, std::span<const int> descriptors);

}  // namespace carrel::guest
