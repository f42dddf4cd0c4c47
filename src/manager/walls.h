#pragma once

#include "base/result.h"
#include "policy/backend.h"
#include "policy/spec.h"
#include "sandbox/walls.h"

namespace carrel::manager {

// Whoever builds the walls of a backend; null: the guest itself does.
const sandbox::Walls* find_walls(policy::Backend backend, std::string_view runtime);

// Chooses the backend of a spec that asks for a strength and names none; of one that names one,
// checks that it is strong enough.
Status settle_walls(policy::Spec& spec);

}  // namespace carrel::manager
