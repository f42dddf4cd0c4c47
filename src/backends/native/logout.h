#pragma once

#include <string>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

// What a logout does to the long-lived sandboxes of a user, who may have to let them linger.
enum class Logout { kLeavesAlone, kEnds };

struct LogoutFacts {
  Logout effect = Logout::kLeavesAlone;
  std::string fix;  // the command that changes kEnds
};

// From the facts about a login; a pure function.
LogoutFacts logout_effect(const Surroundings& around);

// For sandboxes made by this process, where it is now.
LogoutFacts look_at_logout();

}  // namespace carrel::native
