#include "storage/workspaces/current.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/files.h"
#include "base/open_below.h"
#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/tree_index.h"

namespace carrel::storage {

namespace {

// Everything that a scan found, with the hashes of all files, and the attributes.
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
    const bool there = known < index.size() && index.path(known) == entry.path;
    if (there && has_same_attributes(index[known], entry, index.began_ns())) {
      entry.attributes = index.attributes(known);
    } else if (entry.kind == EntryKind::kFile || entry.kind == EntryKind::kDirectory) {
      CARREL_ASSIGN(entry.attributes, attributes_below(tree, entry.path));
    }
    if (there && is_certain(index[known], entry, index.began_ns())) {
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
  CARREL_ASSIGN(const UniqueFd top, store.open_tree(workspace));
  const bool shown = store.is_shown(workspace.name);
  CARREL_ASSIGN(const UniqueFd place, store.open_place(workspace.name));
  // In memory a write through a mapping changes no time, and neither does it where data was lost.
  const bool is_certain = !shown && (!has_disk(place.get()) || check_disk(place.get()).ok());
  const TreeIndex index =
      is_certain ? read_index(directory.get(), "index", workspace.head) : TreeIndex();
  ScanOptions options;
  options.index = &index;
  if (shown) {
    options.without.insert(kStageInTree);
  }
  CARREL_ASSIGN(TreeScan scan, scan_tree(top.get(), workspace.form, options));
  CARREL_ASSIGN(const std::vector<TreeEntry> changes, with_hashes(top.get(), index, scan));
  CARREL_ASSIGN(const std::vector<LayerRef> base, store.records().base_layers(workspace.name));
  CARREL_ASSIGN(Tree tree, store.read_tree(base));
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
