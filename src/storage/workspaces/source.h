#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// The name of the snapshot that is a copy of where a workspace came from.
inline constexpr char kOrigin[] = "origin";

struct WorkspaceSource {
  int directory = -1;             // on the host, open for reading; never written to
  std::string path;               // where that is
  std::set<std::string> without;  // paths in it that are left out
};

// Makes a workspace that begins as a copy of a directory, and its first snapshot, which is that
// copy. kConflict when there is one of that name.
Result<WorkspaceRow> copy_workspace(WorkspaceStore& store, WorkspaceRow row,
                                    const WorkspaceSource& source);

}  // namespace carrel::storage
