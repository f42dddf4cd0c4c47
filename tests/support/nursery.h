#pragma once

#include <sys/types.h>

#include "support/process.h"

namespace carrel::test {

// The nursery of the keeper of this installation, as soon as it has one, or 0.
pid_t wait_for_nursery(As as);
// The nursery that lives, or 0.
pid_t nursery();
// The first process of a sandbox that came from a nursery, or 0.
pid_t lent_process();

}  // namespace carrel::test
