#pragma once

#include <sys/types.h>

#include <vector>

#include "support/process.h"

namespace carrel::test {

// The nursery of the keeper of this installation, as soon as it has one, or 0.
pid_t wait_for_nursery(As as);
// The nursery that lives, or 0.
pid_t nursery();
// The first processes of sandboxes that came from a nursery; of one of them, or 0.
std::vector<pid_t> lent_processes();
pid_t lent_process();

}  // namespace carrel::test
