#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "storage/workspaces/workspace_store.h"

// What the owner of something on the disk is charged for it (decision 45). It is never less than
// what it takes, or can come to take without anybody being asked again.
namespace carrel::storage {

// A workspace, without its snapshots and what it stands on.
std::uint64_t charge_for(const WorkspaceRow& workspace);
// One that is about to be made, of that size.
std::uint64_t charge_for_new(std::uint64_t disk_bytes);

struct Charges {
  std::uint64_t workspaces = 0;
  std::uint64_t layers = 0;
};
Result<Charges> charges_of(WorkspaceRecords& records, const std::string& owner);

// Finds out what the layers take that an earlier version made, by their lists.
Status measure_old_layers(WorkspaceStore& store);

}  // namespace carrel::storage
