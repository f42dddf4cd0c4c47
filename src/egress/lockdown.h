#pragma once

#include "base/result.h"
#include "storage/home.h"

namespace carrel::egress {

// Gives up everything that the egress process does not need, for good: capabilities, system calls,
// and files but those of registrations, its log, and the host's settings of names. It speaks to
// hostile programs on one side and to the world on the other.
Status lock_down(const storage::Home& home);

// The first part of it: capabilities, new privileges, and being read by other programs.
Status give_up_rights();

}  // namespace carrel::egress
