#include "storage/workspaces/current.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/tree_index.h"

namespace carrel::storage {

namespace {

// The hashes of all files of a scan, and the attributes.
Status fill_hashes(int tree, const TreeIndex& index, std::vector<ScannedEntry>& entries) {
  auto known = index.entries.begin();
  for (ScannedEntry& entry : entries) {
    while (known != index.entries.end() && comes_before(known->path, entry.path)) {
      ++known;
    }
    if (entry.kind != EntryKind::kFile && entry.kind != EntryKind::kDirectory) {
      continue;
    }
    const bool there = known != index.entries.end() && known->path == entry.path;
    if (there && has_same_attributes(*known, entry, index.began_ns)) {
      entry.attributes = known->attributes;
    } else {
      CARREL_ASSIGN(entry.attributes, attributes_below(tree, entry.path));
    }
    if (entry.kind != EntryKind::kFile) {
      continue;
    }
    if (there && is_certain(*known, entry, index.began_ns)) {
      entry.hash = known->hash;
      continue;
    }
    CARREL_ASSIGN(entry.hash, hash_synced(tree, entry.path));
  }
  return {};
}

}  // namespace

Result<Tree> current_tree(WorkspaceStore& store, const WorkspaceRow& workspace) {
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(workspace));
  CARREL_ASSIGN(const UniqueFd top, store.open_tree(workspace));
  const bool shown = store.is_shown(workspace.name);
  ScanOptions options;
  if (shown) {
    options.without.insert(kStageInTree);
  }
  CARREL_ASSIGN(TreeScan scan, scan_tree(top.get(), workspace.form, options));
  // In memory a write through a mapping changes no time.
  const TreeIndex index =
      shown ? TreeIndex{} : read_index(directory.get(), "index", workspace.head);
  CARREL_TRY(fill_hashes(top.get(), index, scan.entries));
  CARREL_ASSIGN(const std::vector<LayerRef> base, store.records().base_layers(workspace.name));
  CARREL_ASSIGN(Tree tree, store.read_tree(base));
  std::vector<TreeEntry> changes(std::make_move_iterator(scan.entries.begin()),
                                 std::make_move_iterator(scan.entries.end()));
  apply_changes(tree, changes, "");
  return tree;
}

Result<UniqueFd> open_contents(WorkspaceStore& store, const WorkspaceRow& workspace,
                               const TreeNode& node) {
  UniqueFd top;
  if (node.layer.empty()) {
    CARREL_ASSIGN(top, store.open_tree(workspace));
  } else {
    CARREL_ASSIGN(const UniqueFd layer, store.open_layer(node.layer));
    CARREL_ASSIGN(top, open_at(layer.get(), "tree", O_RDONLY | O_DIRECTORY));
  }
  return open_below(top.get(), node.entry.path, O_RDONLY | O_NONBLOCK);
}

}  // namespace carrel::storage
