#pragma once

#include "base/result.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// As many layers as a snapshot has at most. Each costs an overlay over them a mount, and there is a
// limit to how many it takes.
inline constexpr std::size_t kMostLayers = 32;

// Makes the upper layers of a snapshot that has more into one, which is the same to whoever reads
// it: their files get one more name in it and are not copied. Others that list those layers keep
// them. The layers that are taken grow with what they hold, so that each file is taken up a few
// times however long the history becomes.
Status flatten(WorkspaceStore& store, SnapshotRow& snapshot);

}  // namespace carrel::storage
