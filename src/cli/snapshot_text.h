#pragma once

#include <string>

#include "storage/workspaces/records.h"

namespace carrel::cli {

// A snapshot as one JSON object.
std::string snapshot_json(const storage::SnapshotRow& row);

}  // namespace carrel::cli
