#pragma once

#include <cstdint>
#include <string_view>

#include "guest/state.h"

// Programs that run as long as the sandbox does. Each is a command without a client and without a
// deadline. One that ends is started again, after a pause that grows while it ends soon; what it
// left behind is ended first.
namespace carrel::guest {

// From the sandbox's maker alone, and before he lets go of it. False: it is malformed.
bool add_service(Guest& guest, std::string_view payload);

// Starts those that are due, and looks whether those that started are ready.
void tend_services(Guest& guest, std::uint64_t now);
// When that is to be done next; 0: when something happens.
std::uint64_t service_deadline(const Guest& guest);

// Answers kServices.
bool tell_services(Guest& guest, std::uint32_t client, std::uint32_t channel);

}  // namespace carrel::guest
