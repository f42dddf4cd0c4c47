#pragma once

#include "cli/context.h"
#include "manager/workspace_target.h"
#include "storage/workspaces/changes.h"
#include "storage/workspaces/compare.h"

namespace carrel::cli {

// Shows what leads from one tree of a workspace to another, as `carrel diff` does. Returns the exit
// status.
int show_diff(const Context& context, manager::WorkspaceTarget& at, const storage::Tree& before,
              const storage::Tree& after);

// "added", "modified", "deleted" or "renamed".
const char* change_name(storage::Change change);

}  // namespace carrel::cli
