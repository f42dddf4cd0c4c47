#pragma once

#include "guest/failure.h"
#include "guest/root.h"
#include "protocol/boot.h"

namespace carrel::guest {

// Phase 4: what only a guest with capabilities can do: hostname, keyring.
bool set_up_identity(const protocol::Boot& boot, Failure& failure);

// The second, less privileged user namespace; none can be made below it. Then
// the guest gives up every capability for good and becomes undumpable. Its own system call filter
// comes last. `clocks` is what the kernel could give. They begin with the lock; with `unset`, which
// becomes a descriptor or -1, when begin_clocks() is called with that.
bool lock_in(const protocol::Boot& boot, const BuiltRoot& built, protocol::Clocks& clocks,
             Failure& failure, int* unset = nullptr);
// Before the first process of the workload is made. Closes the descriptor.
bool begin_clocks(int unset, Failure& failure);

// Makes the Landlock rules for the workload while paths are still the guest's to choose. Returns a
// ruleset descriptor, -1 where the kernel has no Landlock or the host did not ask for it.
bool prepare_landlock(const protocol::Boot& boot, const BuiltRoot& built, int& ruleset,
                      Failure& failure);

// Turns this process into one of the workload: its limits, Landlock and the system call filter.
// Everything that it forks or executes inherits them. Irreversible.
bool become_workload(const protocol::Boot& boot, int ruleset, Failure& failure);

}  // namespace carrel::guest
