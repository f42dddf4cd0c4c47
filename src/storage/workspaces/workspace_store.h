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
  // Makes one, with its directories, unless there is one.
  Result<WorkspaceRow> ensure(const WorkspaceRow& wanted);
  // The directory of a workspace that has a row; what is missing in it is made.
  Result<UniqueFd> open_directory(const WorkspaceRow& row);
  Result<UniqueFd> lock(const UniqueFd& directory);
  enum class Sharing { kAlone, kShared };
  // The mark of somebody who runs in it, for as long as it is open. kConflict.
  Result<UniqueFd> use(const WorkspaceRow& row, Sharing sharing);

  // The snapshot that a person means: its id or, of that workspace (of any, if it is empty), its name
  // or the beginning of its id. One that could be several is an error.
  Result<SnapshotRow> find_snapshot(const std::string& workspace, const std::string& named);

  // An empty directory for a layer, which nobody sweeps away as long as it is open.
  struct Draft {
    std::string id;
    UniqueFd directory;
    UniqueFd tree;
  };
  Result<Draft> make_layer();
  // Writes the list of its changes and returns its reference. All of it is on disk afterwards.
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

  Status discard(const std::string& name);
  Status sweep_workspace(const WorkspaceRow& row);

  const Home* home_;
  WorkspaceRecords records_;
  // Each is locked for the moment in which something in it has no row or lock of its own yet.
  UniqueFd workspaces_;
  UniqueFd layers_;
};

}  // namespace carrel::storage
