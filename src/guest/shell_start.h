#pragma once

#include <string_view>

#include "guest/state.h"

namespace carrel::guest {

// The session of that name, a new one if there is none; nullptr when all are in use.
Shell* find_shell(Guest& guest, std::string_view name);

// Starts a bash for the session. It is ready when it has told its first status. 0 or a negative
// errno.
int start_shell(Guest& guest, Shell& shell);

}  // namespace carrel::guest
