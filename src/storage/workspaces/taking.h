#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/layer_files.h"
#include "storage/workspaces/tree_index.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

// What a snapshot adds to the one before it.
struct TakenLayer {
  std::vector<TreeEntry> changes;
  TreeScan scan;            // of the tree as it is now, with hashes
  std::uint64_t bytes = 0;  // copied
  LayerFiles files;         // of the layer, not on disk yet
};

enum class Found { kNothingNew, kChanges };

struct LayerRequest {
  int tree = -1;
  TreeForm form = TreeForm::kPlain;
  const TreeIndex& before;
  int layer = -1;                         // an empty directory
  std::function<void(Found found)> read;  // called when the tree is not needed any more
  std::set<std::string> without = {};     // paths that are left out
  const InodeTables* tables = nullptr;    // of the tree, where they can be read
  TreeWatch* watch = nullptr;             // of the tree since `before`, where there is one
  std::uint64_t most = UINT64_MAX;        // that the layer may take of the disk
};

// Compares the tree with what it was before and copies what differs into the layer. Nobody may
// write to the tree until `read` is called.
Result<TakenLayer> take_layer(const LayerRequest& request);

}  // namespace carrel::storage
