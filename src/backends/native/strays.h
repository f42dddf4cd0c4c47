#pragma once

#include <string>

#include "base/result.h"
#include "kernel/cgroup.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::native {

// The control groups of this installation below `parent`; empty: where they are by default.
Result<kernel::CgroupLayout> find_groups(const storage::Home& home, const std::string& parent);

// Removes what carries the id of a sandbox that has no mark, neither run/once/ID nor run/box/ID:
// control groups, claimed ids, rows of the database that say it lives; and the temporary files of
// processes that are gone. Never touches another installation's. Safe at any moment: a mark is made
// before everything else and removed after it, and an id is never used twice.
void sweep_strays(storage::Home& home);

// Whether a sandbox that runs, and dies, is to be made again.
bool is_made_again(const storage::SandboxRow& row);

}  // namespace carrel::native
