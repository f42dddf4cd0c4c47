#pragma once

#include "guest/failure.h"
#include "guest/state.h"

// The spawner of a guest that waits for its sandbox (docs/decisions/0027). It is forked when the
// guest locks itself in, takes the same steps and those of the workload, and waits: to fork it and
// to take them is what the first command would have to wait for otherwise.
namespace carrel::guest {

// Locks the guest in, with a spawner beside it. `clocks` is for start_waiting_spawner().
bool lock_with_spawner(Guest& guest, int& clocks, Failure& failure);

// The sandbox is taken, and is `boot`: the clocks begin, and the spawner goes on if it is the one
// that the sandbox would have. Otherwise it ends, and the guest has none.
bool start_waiting_spawner(Guest& guest, const protocol::Boot& boot, int clocks, Failure& failure);

}  // namespace carrel::guest
