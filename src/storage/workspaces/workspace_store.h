#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/workspaces/changes.h"
#include "storage/workspaces/layer_files.h"
#include "storage/workspaces/records.h"

namespace carrel::storage {

// The workspaces of an installation:
//
//   workspaces/NAME/tree    the files, as they are now
//   workspaces/NAME/work    of a fork: what its overlay needs; `tree` is the overlay's upper then
//   workspaces/NAME/index   see tree_index.h
//   workspaces/NAME/lock    held by whoever takes a snapshot, restores one or removes the workspace
//   workspaces/NAME/use     held by whoever runs in it and has no row of its own; shared or not
//   workspaces/NAME/stage   what a restore is about to move into place
//   workspaces/NAME/disk    where it has a file system of its own: that, see disk_image.h; `tree`,
//                           `work`, `index` and `stage` are in it then
//   workspaces/NAME/mount   and where it is put for a fork's overlay
//   workspaces/NAME/quiet   and evidence that nothing has changed in it, see quiet.h
//   layers/ID/tree          the files of a layer
//   layers/ID/changes       its list, see changes.h; layers are never written to again
//
// What has no row in the database is a leftover, unless somebody holds a lock on it.
class WorkspaceStore {
 public:
  static Result<WorkspaceStore> open(const Home& home);

  [[nodiscard]] WorkspaceRecords& records() { return records_; }
  [[nodiscard]] const Home& home() const { return *home_; }

  // The workspace of that name; kNotFound.
  Result<WorkspaceRow> find(const std::string& name);
  // Makes one; kConflict when there is one of that name. One with a size gets a file system of its
  // own where that can be had.
  Status make(const WorkspaceRow& row);
  // Makes one unless there is one.
  Result<WorkspaceRow> ensure(const WorkspaceRow& wanted);
  // The directory that has the tree of a workspace; what is missing in it is made.
  Result<UniqueFd> open_directory(const WorkspaceRow& row);
  // The tree itself: that of the directory, or what was shown.
  Result<UniqueFd> open_tree(const WorkspaceRow& row);
  // From now on the files of a workspace are those of this directory, in the memory of a sandbox.
  void show(const std::string& name, UniqueFd tree) { shown_ = {name, std::move(tree)}; }
  [[nodiscard]] bool is_shown(const std::string& name) const { return shown_.name == name; }
  // What it has that is not part of its tree: locks and marks.
  Result<UniqueFd> open_place(const std::string& name);
  // Its file system as a mount that is nowhere; not valid if it has none of its own.
  Result<UniqueFd> mount(const WorkspaceRow& row);
  Result<UniqueFd> lock(const WorkspaceRow& row);
  enum class Sharing { kAlone, kShared };
  // The mark of somebody who runs in it, for as long as it is open. kConflict.
  Result<UniqueFd> use(const WorkspaceRow& row, Sharing sharing);
  // Whether somebody has that mark now.
  bool is_used(const WorkspaceRow& row);

  // The snapshot that somebody means who has this workspace: by its id, its name or the beginning
  // of its id. One that could be several is an error.
  //
  // CRITICAL: whoever has a workspace has its snapshots, and the one that it was made from or
  // restored to. Those of other workspaces are not there, exactly as those that nobody has.
  Result<SnapshotRow> find_snapshot(const WorkspaceRow& workspace, const std::string& named);
  // The same among those of all workspaces. For the owner of the installation alone.
  Result<SnapshotRow> find_snapshot_anywhere(const std::string& named);
  // The one of that whole id, which a row of ours names.
  Result<SnapshotRow> snapshot(const std::string& id);

  // An empty directory for a layer, which nobody sweeps away as long as it is open.
  struct Draft {
    std::string id;
    UniqueFd directory;
    UniqueFd tree;
  };
  Result<Draft> make_layer();
  // Writes the list of its changes and returns its reference, with what it takes of the disk. All
  // of it is on disk afterwards.
  Result<LayerRef> finish_layer(const Draft& draft, const std::vector<TreeEntry>& changes,
                                LayerFiles& files);
  // Takes back a draft that is not needed.
  void drop_layer(const Draft& draft);
  Result<UniqueFd> open_layer(const std::string& id);
  // The changes of a layer; an error when they are not those that were stored.
  Result<std::vector<TreeEntry>> read_changes(const LayerRef& layer);
  Result<Tree> read_tree(const std::vector<LayerRef>& layers);

  // Takes away what was copied to the place beside the tree.
  static Status clear_stage(const UniqueFd& directory);
  // Takes away what has no row. What somebody is at work on stays.
  Status sweep();
  // Removes the row and then the files. The caller has made sure that nobody uses it.
  Status remove(const std::string& name);

 private:
  explicit WorkspaceStore(const Home& home, WorkspaceRecords records)
      : home_(&home), records_(std::move(records)) {}

  Status adopt(const std::string& draft, const WorkspaceRow& row);
  Status discard(const std::string& name);
  Result<std::vector<std::string>> lost_layers();
  Status sweep_layers();
  Status sweep_workspace(const WorkspaceRow& row);

  const Home* home_;
  WorkspaceRecords records_;
  // Each is locked for the moment in which something in it has no row or lock of its own yet.
  UniqueFd workspaces_;
  UniqueFd layers_;
  // The last file system that was opened, which stays mounted for the next call.
  struct Opened {
    std::string name;
    UniqueFd top;
  };
  Opened opened_;
  Opened shown_;
};

}  // namespace carrel::storage
