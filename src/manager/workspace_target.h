#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/standstill.h"
#include "backends/native/workspace.h"
#include "base/result.h"
#include "storage/box.h"
#include "storage/home.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::manager {

// A workspace that a command works on, with its lock, and the sandboxes that run in it.
struct WorkspaceTarget {
  explicit WorkspaceTarget(storage::Home opened) : home(std::move(opened)) {}

  storage::Home home;
  std::optional<storage::WorkspaceStore> store;
  storage::WorkspaceRow row;
  std::vector<storage::BoxRecord> boxes;
  UniqueFd lock;
  std::optional<native::BoxWriters> writers;
};

// The workspace of the sandbox that the word names, or the workspace of that name. A restore that
// was interrupted is finished first. Changes what this process may do: see storage/…/rights.h.
Result<std::unique_ptr<WorkspaceTarget>> open_workspace_target(const std::string& named);

// Makes sure that no `run` is in it: those cannot be made to stand still, and hold it until they
// end.
Result<UniqueFd> keep_runs_away(WorkspaceTarget& target);

// The snapshot that a word means on the command line: one of the target's own, see
// WorkspaceStore::find_snapshot(), or, as WORKSPACE/SNAPSHOT, one of another workspace.
//
// CRITICAL: the second form is the operator's. No name that a client gives has a '/', and a request
// that gives one is refused before anybody asks here (policy::check_name).
Result<storage::SnapshotRow> find_snapshot(WorkspaceTarget& target, const std::string& named);

// Brings an interrupted restore to its end in a process of its own: what that needs to read files
// with would be in the way of making a sandbox.
void finish_restore_apart(const std::string& workspace);

// The long-lived sandboxes that have a workspace.
struct BoxesWith {
  std::vector<storage::BoxRecord> records;
  bool all_native = true;  // no other walls are around one of them
};
Result<BoxesWith> boxes_with(storage::WorkspaceStore& store, const std::string& workspace);

// The name of the workspace of a sandbox; empty when it has none of its own.
Result<std::string> workspace_of(storage::WorkspaceStore& store, const std::string& id);

}  // namespace carrel::manager
