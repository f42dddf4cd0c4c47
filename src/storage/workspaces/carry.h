#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/compare.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// Carries changes of a workspace back to the directory that it is a copy of. Everything that comes
// from the workspace is the workload's: names are walked without following a link, and what would
// lead or act beyond the directory is refused.

// Why a change cannot be carried over; empty when it can, or already is.
struct Carry {
  Difference difference;
  std::string refusal;
  bool done = false;  // the directory is already so
};

// Looks at each change; `directory` is open for reading.
Result<std::vector<Carry>> judge_changes(int directory, const std::vector<Difference>& changes);

// Makes one change: the new file is written beside the old one and then takes its place.
Status carry_change(WorkspaceStore& store, const WorkspaceRow& workspace, int directory,
                    const Difference& change);

// Changes the snapshot of where the workspace came from by what was carried over: it is what the
// directory has now.
Status note_carried(WorkspaceStore& store, const WorkspaceRow& workspace, const SnapshotRow& origin,
                    const std::vector<Difference>& carried);

}  // namespace carrel::storage
