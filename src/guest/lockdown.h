#pragma once

#include <string_view>

#include "guest/failure.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "protocol/boot.h"

namespace carrel::guest {

// Phase 4: what only a guest with capabilities can do: hostname, keyring.
bool set_up_identity(const protocol::Boot& boot, Failure& failure);

// The second, less privileged user namespace; none can be made below it. Then the guest gives up
// every capability for good and becomes undumpable. Its own system call filter comes last. `clocks`
// is what the kernel could give; they begin here.
bool lock_in(const protocol::Boot& boot, const BuiltRoot& built, protocol::Clocks& clocks,
             Failure& failure);

// The same in two steps, for a guest that waits for its sandbox. Between them it can fork a process
// that takes the second one for itself. In that `unset` becomes a descriptor for begin_clocks(), or
// -1 where the kernel has no such clocks: they are those of whom this process forks.
bool begin_lock(const protocol::Boot& boot, const BuiltRoot& built, Failure& failure);
bool end_lock(const protocol::Boot& boot, int& unset, Failure& failure);

// What makes clocks begin now.
using ClockOffsets = Text<96>;
ClockOffsets offsets_now();
// Before anything is forked that is to have them. Closes the descriptor.
bool begin_clocks(int unset, std::string_view offsets, Failure& failure);

// Makes the Landlock rules for the workload while paths are still the guest's to choose. Returns a
// ruleset descriptor, -1 where the kernel has no Landlock or the host did not ask for it.
bool prepare_landlock(const protocol::Boot& boot, const BuiltRoot& built, int& ruleset,
                      Failure& failure);

// Turns this process into one of the workload: its limits, Landlock and the system call filter.
// Everything that it forks or executes inherits them. Irreversible.
bool become_workload(const protocol::Boot& boot, int ruleset, Failure& failure);

}  // namespace carrel::guest
