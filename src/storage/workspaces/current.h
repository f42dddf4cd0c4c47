#pragma once

#include "base/result.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// What a workspace holds now, as a whole tree. Contents that are in no layer yet are in the
// workspace's own tree: the layer of those is empty. Hashes are taken from the index of the last
// snapshot where it is certain that nothing changed.
Result<Tree> current_tree(WorkspaceStore& store, const WorkspaceRow& workspace);

// Opens the contents of a file of a tree, for reading.
Result<UniqueFd> open_contents(WorkspaceStore& store, const WorkspaceRow& workspace,
                               const TreeNode& node);

}  // namespace carrel::storage
