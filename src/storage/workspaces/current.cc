#include "storage/workspaces/current.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "base/open_below.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/tree_index.h"

namespace carrel::storage {

namespace {

// Everything that a scan found, with the hashes of all files.
Result<std::vector<TreeEntry>> with_hashes(int tree, const TreeIndex& index, TreeScan& scan) {
  std::vector<TreeEntry> all;
  std::size_t known = 0;
  auto next = scan.entries.begin();
  for (const ScanPart& part : scan.parts) {
    for (std::size_t i = part.first; i < part.last; ++i) {
      all.push_back(index.entry(i));
    }
    if (!part.is_entry()) {
      known = part.last;
      continue;
    }
    ScannedEntry& entry = *next++;
    while (known < index.size() && comes_before(index.path(known), entry.path)) {
      ++known;
    }
    const bool same = known < index.size() && index.path(known) == entry.path;
    if (same && is_certain(index[known], entry, index.began_ns())) {
      entry.hash = index[known].hash;
    } else if (entry.kind == EntryKind::kFile) {
      CARREL_ASSIGN(entry.hash, hash_synced(tree, entry.path));
    }
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace

Result<Tree> current_tree(WorkspaceStore& store, const WorkspaceRow& workspace) {
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(workspace));
  CARREL_ASSIGN(const UniqueFd top, open_at(directory.get(), "tree", O_RDONLY | O_DIRECTORY));
  const TreeIndex index = read_index(directory.get(), "index", workspace.head);
  CARREL_ASSIGN(TreeScan scan, scan_tree(top.get(), workspace.form, {{}, &index}));
  CARREL_ASSIGN(const std::vector<TreeEntry> changes, with_hashes(top.get(), index, scan));
  CARREL_ASSIGN(const std::vector<LayerRef> base, store.records().base_layers(workspace.name));
  CARREL_ASSIGN(Tree tree, store.read_tree(base));
  apply_changes(tree, changes, "");
  return tree;
}

Result<UniqueFd> open_contents(WorkspaceStore& store, const WorkspaceRow& workspace,
                               const TreeNode& node) {
  UniqueFd above;
  if (node.layer.empty()) {
    CARREL_ASSIGN(above, store.open_directory(workspace));
  } else {
    CARREL_ASSIGN(above, store.open_layer(node.layer));
  }
  CARREL_ASSIGN(const UniqueFd top, open_at(above.get(), "tree", O_RDONLY | O_DIRECTORY));
  return open_below(top.get(), node.entry.path, O_RDONLY | O_NONBLOCK);
}

}  // namespace carrel::storage
