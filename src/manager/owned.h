#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/home.h"
#include "storage/workspaces/charge.h"

// What somebody has on the disk that is in no sandbox, and what becomes of it.
namespace carrel::manager {

struct OwnedWorkspace {
  storage::WorkspaceRow row;
  std::vector<storage::SnapshotRow> snapshots;
  std::uint64_t charged_bytes = 0;  // without its snapshots
};

struct Owned {
  std::vector<OwnedWorkspace> workspaces;
  storage::Charges charges;
  std::optional<std::uint64_t> quota_bytes;
};

// Removes the workspaces that go with sandboxes which have ended, each in a run of this program.
// What is in use stays, for the next time.
void remove_left_over(const storage::Home& home);
// Removes these, each in a run of this program, and returns those that are gone.
std::vector<std::string> remove_workspaces(const std::vector<std::string>& names);

}  // namespace carrel::manager
