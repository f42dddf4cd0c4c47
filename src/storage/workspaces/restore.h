#pragma once

#include "base/result.h"
#include "storage/workspaces/snapshot.h"

namespace carrel::storage {

// Makes a workspace what it was in a snapshot. What is copied is checked against its hash first,
// and until then nothing has changed; from then on the intent is stored, and a crash is made good
// by the next call of finish_restore(). The workspace's lock is held.
Status restore_snapshot(WorkspaceStore& store, const WorkspaceRow& workspace,
                        const SnapshotRow& snapshot, Writers& writers);

// Brings a restore to its end that was interrupted, if there is one.
Status finish_restore(WorkspaceStore& store, const WorkspaceRow& workspace, Writers& writers);

}  // namespace carrel::storage
