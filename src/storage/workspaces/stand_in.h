#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "storage/box.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// A sandbox without a named workspace has its files in memory, and they go with it. Its snapshots
// are those of a workspace that stands for it:
//
//   workspaces/NAME/box   the id of the sandbox, as long as its files are the workspace's
//
// When the sandbox is gone it is a workspace like any other, and holds what its newest snapshot
// has.

// The workspace that stands for a sandbox; made for the sandbox's owner if it is missing.
Result<WorkspaceRow> ensure_stand_in(WorkspaceStore& store, const std::string& box,
                                     const std::string& owner);

// The sandbox that has the files of a workspace in its memory, if there is one that lives.
std::optional<BoxRecord> stands_for(WorkspaceStore& store, const std::string& workspace);

// What is left to do when the sandbox is gone. The workspace's lock is held.
Status settle_stand_in(WorkspaceStore& store, const WorkspaceRow& workspace);

}  // namespace carrel::storage
