#pragma once

#include <cstdint>
#include <string>

#include "cli/context.h"
#include "storage/workspaces/records.h"

namespace carrel::cli {

// A snapshot as one JSON object.
std::string snapshot_json(const storage::SnapshotRow& row);

// What --most says that it may take of the disk.
std::uint64_t most_bytes(const Context& context);

}  // namespace carrel::cli
