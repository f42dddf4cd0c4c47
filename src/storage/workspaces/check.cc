#include "storage/workspaces/check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <set>

#include "base/files.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

namespace {

class Checker {
 public:
  Checker(WorkspaceStore& store, CheckReport& report) : store_(store), report_(report) {}

  void layer(const LayerRef& layer) {
    auto changes = store_.read_changes(layer);
    auto directory = store_.open_layer(layer.id);
    auto top = directory.ok() ? open_at(directory->get(), "tree", O_RDONLY | O_DIRECTORY)
                              : Result<UniqueFd>(directory.error());
    if (!changes.ok() || !top.ok()) {
      problem("layer " + layer.id + ": " +
              (changes.ok() ? top.error() : changes.error()).to_string());
      return;
    }
    ++report_.layers;
    for (const TreeEntry& entry : changes.value()) {
      if (entry.kind == EntryKind::kFile) {
        file(layer, top->get(), entry);
      }
    }
  }

  void snapshot(const SnapshotRow& row) {
    ++report_.snapshots;
    auto tree = store_.read_tree(row.layers);
    if (!tree.ok()) {
      problem("snapshot " + row.id + ": " + tree.error().to_string());
      return;
    }
    // Everything has a place to be.
    for (const auto& [path, node] : tree.value()) {
      const std::string above = split_path(path).first;
      const auto parent = tree->find(above);
      if (!above.empty() &&
          (parent == tree->end() || parent->second.entry.kind != EntryKind::kDirectory)) {
        problem("snapshot " + row.id + ": '" + path + "' lies in no directory");
      }
    }
  }

  void workspace(const WorkspaceRow& row) {
    ++report_.workspaces;
    auto directory = store_.open_directory(row);
    if (!directory.ok()) {
      problem("workspace " + row.name + ": " + directory.error().to_string());
    }
  }

 private:
  void problem(std::string text) { report_.problems.push_back(std::move(text)); }

  void file(const LayerRef& layer, int top, const TreeEntry& entry) {
    auto hash = hash_synced(top, entry.path);
    ++report_.files;
    report_.bytes += entry.size;
    if (!hash.ok()) {
      problem("layer " + layer.id + ": " + hash.error().to_string());
    } else if (hash.value() != entry.hash) {
      problem("layer " + layer.id + ": '" + entry.path + "' has changed");
    }
  }

  WorkspaceStore& store_;
  CheckReport& report_;
};

}  // namespace

Result<CheckReport> check_workspaces(WorkspaceStore& store) {
  CheckReport report;
  Checker checker(store, report);
  CARREL_ASSIGN(const std::vector<LayerRef> layers, store.records().layers());
  for (const LayerRef& layer : layers) {
    checker.layer(layer);
  }
  CARREL_ASSIGN(const std::vector<SnapshotRow> snapshots, store.records().snapshots(""));
  for (const SnapshotRow& row : snapshots) {
    checker.snapshot(row);
  }
  CARREL_ASSIGN(const std::vector<WorkspaceRow> workspaces, store.records().list());
  for (const WorkspaceRow& row : workspaces) {
    checker.workspace(row);
  }
  return report;
}

}  // namespace carrel::storage
