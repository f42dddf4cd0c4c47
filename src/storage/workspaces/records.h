#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/database.h"
#include "storage/home.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

// What the state database knows of workspaces and their snapshots. A workspace or a snapshot exists
// if it has a row here; directories without one are leftovers.

struct WorkspaceRow {
  std::string name;
  TreeForm form = TreeForm::kPlain;
  std::int64_t created_ms = 0;
  std::int64_t used_ms = 0;      // when a sandbox last had it
  std::uint64_t disk_bytes = 0;  // what it may hold; zero: not said
  std::string base;              // the snapshot that a fork began with; empty: none
  std::string head;              // the last snapshot taken of it or restored to it; empty: none
  std::string source;            // the host directory that it began as a copy of; empty: none
  std::string restoring;         // the snapshot that its tree is being made into; empty: none
  std::string owner;             // who pays for it; empty: the operator
  std::string for_box;           // the sandbox, or flow_mark(), that it goes with; empty: it stays
};

// What a workspace goes with that an execution of a flow made for itself.
std::string flow_mark(std::string_view execution);

struct LayerRef {
  std::string id;
  std::string digest;       // SHA-256 of its list of changes
  std::uint64_t bytes = 0;  // what it takes on the disk, of one that was made just now
};

struct SnapshotRow {
  std::string id;
  std::string workspace;
  std::string name;  // empty: none was given
  std::int64_t created_ms = 0;
  std::int64_t frozen_us = 0;                          // how long the workload stood still for it
  std::uint64_t changed = 0;                           // entries of its newest layer
  std::uint64_t bytes = 0;                             // and what was copied for it
  std::vector<LayerRef> layers;                        // the lowest first
  enum class Asked { kNo, kYes } asked = Asked::kYes;  // no: a fork or a copy took it
};

class WorkspaceRecords {
 public:
  static Result<WorkspaceRecords> open(const Home& home);
  // Where the rows of sandboxes are, too.
  [[nodiscard]] Database database() const { return database_.share(); }

  // kConflict when there is one of that name.
  Status add(const WorkspaceRow& row);
  Result<std::optional<WorkspaceRow>> find(const std::string& name);
  Result<std::vector<WorkspaceRow>> list();
  Result<std::vector<WorkspaceRow>> owned_by(const std::string& owner);
  Status touch(const std::string& name);
  // It goes with that sandbox.
  Status set_for_box(const std::string& name, const std::string& box);
  // Those that go with sandboxes which have ended, but for those in which somebody asked for a
  // snapshot. The table of sandboxes has to be there.
  Result<std::vector<std::string>> left_over();
  // Those that go with executions of flows, but for those in which somebody asked for a snapshot or
  // that an execution still refers to.
  struct OfFlow {
    std::string name;
    std::string execution;
    std::int64_t used_ms = 0;
  };
  Result<std::vector<OfFlow>> of_flows();
  Status set_restoring(const std::string& name, const std::string& snapshot);
  // The tree is the snapshot's now.
  Status set_head(const std::string& name, const std::string& snapshot);
  // A fork's tree begins anew over another snapshot.
  Status set_base(const std::string& name, const std::string& snapshot);
  // With its snapshots. kConflict while somebody holds one of them.
  Status remove(const std::string& name);

  // Stores the snapshot and that it is the head of its workspace, both or neither; and, if the
  // holder has a name, that it is held.
  Status add_snapshot(const SnapshotRow& row, const std::string& holder = {});
  // Of one workspace, or of all if the name is empty; the oldest first.
  Result<std::vector<SnapshotRow>> snapshots(const std::string& workspace);
  Result<std::optional<SnapshotRow>> snapshot(const std::string& id);
  Result<bool> is_held(const std::string& id);
  // kConflict as long as a workspace is being restored to it, or somebody holds it.
  Status remove_snapshot(const std::string& id);

  // Whoever holds a snapshot refers to it, and it stays until everybody has let go of it.
  // kNotFound when it is not there any more.
  Status hold(const std::string& snapshot, const std::string& holder);
  // What somebody holds, if it is there.
  Result<std::optional<SnapshotRow>> held_by(const std::string& holder);
  // Nobody holds it any more. One that was taken for a holder goes then, unless a workspace stands
  // at it or a person gave it a name.
  Status let_go(const std::string& snapshot);
  // Whether a workspace's last snapshot is this one.
  Result<bool> is_head(const std::string& snapshot);
  // It is another tree from now on.
  Status set_layers(const std::string& snapshot, const std::vector<LayerRef>& layers);
  // Every layer that a snapshot lists or a fork stands on.
  Result<std::vector<LayerRef>> layers();
  // What the layers take that snapshots and forks of that owner refer to, each once.
  Result<std::uint64_t> layer_bytes(const std::string& owner);
  Result<std::uint64_t> all_layer_bytes();
  // The layers of which that is not known, which an earlier version made.
  Result<std::vector<LayerRef>> unmeasured();
  Status set_size(const std::string& layer, std::uint64_t bytes);
  // Drops the sizes of layers that nobody refers to any more.
  Status forget_sizes();
  // The layers that a workspace stands on, whether their snapshot still exists or not.
  Result<std::vector<LayerRef>> base_layers(const std::string& workspace);

 private:
  explicit WorkspaceRecords(Database database) : database_(std::move(database)) {}
  Result<std::vector<SnapshotRow>> list_snapshots(const char* sql, const std::string& value);
  Result<std::vector<LayerRef>> list_layers(const char* sql, const std::string& owner);
  Status add_layers(const char* sql, const std::string& owner, const std::vector<LayerRef>& layers);
  Status run(const char* sql, std::initializer_list<std::string_view> values);
  Status forget_lost_heads();
  Status bring_up_to_date();
  Result<std::vector<WorkspaceRow>> list_workspaces(const char* sql, const std::string& value);
  Status add_hold(const std::string& snapshot, const std::string& holder, const char* made);
  Status in_transaction(const std::function<Status()>& work);
  Database database_;
};

}  // namespace carrel::storage
