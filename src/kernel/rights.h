#pragma once

#include "base/result.h"

namespace carrel::kernel {

// Of this process: no capability, no way to gain one, and nobody else of the user's can look at its
// memory.
Status drop_rights();

}  // namespace carrel::kernel
