#pragma once

#include "guest/state.h"

namespace carrel::guest {

// The guest's life after it was locked in: serves clients, commands and shells until the sandbox
// ends. `control` is the stream of whoever made the guest, already greeted.
[[noreturn]] void serve(Guest& guest, int control);

}  // namespace carrel::guest
