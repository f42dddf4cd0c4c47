#pragma once

#include "policy/backend.h"
#include "sandbox/walls.h"

namespace carrel::manager {

// Whoever builds the walls of a backend; null: the guest itself does.
const sandbox::Walls* find_walls(policy::Backend backend);

}  // namespace carrel::manager
