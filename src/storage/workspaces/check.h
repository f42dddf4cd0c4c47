#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

struct CheckReport {
  std::size_t workspaces = 0;
  std::size_t snapshots = 0;
  std::size_t layers = 0;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> problems;  // sentences
};

// Reads everything that workspaces and snapshots refer to and compares it with what was stored: the
// list of each layer with its digest, each file with its hash, each tree with its layers.
Result<CheckReport> check_workspaces(WorkspaceStore& store);

}  // namespace carrel::storage
