#include "backends/native/workspace.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/files.h"
#include "kernel/image_mount.h"
#include "policy/spec_json.h"
#include "storage/box.h"
#include "storage/state.h"
#include "storage/workspaces/disk_room.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/stand_in.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::native {

namespace {

using storage::WorkspaceStore;

// A long-lived sandbox that has it and does not share it, or is not to.
Status check_boxes(const storage::Home& home, const policy::Spec& spec) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_ASSIGN(const std::vector<storage::SandboxRow> rows,
                state.list(storage::State::Which::kLive));
  for (const storage::SandboxRow& row : rows) {
    auto other = policy::spec_from_json(row.spec);
    if (row.state == "stopped" || !other.ok() || other->workspace != spec.workspace) {
      continue;
    }
    const bool both = other->workspace_use == policy::WorkspaceUse::kShared &&
                      spec.workspace_use == policy::WorkspaceUse::kShared;
    if (!both) {
      return Error{Code::kConflict, 0,
                   "sandbox " + (row.name.empty() ? row.id : "'" + row.name + "'") +
                       " has the workspace '" + spec.workspace + "'",
                   "remove it, fork it, or give both --share-workspace"};
    }
  }
  return {};
}

GivenTree::Overlay overlay_of(const storage::Home& home, const storage::WorkspaceRow& row,
                              const std::vector<storage::LayerRef>& layers) {
  GivenTree::Overlay overlay;
  overlay.top = home.path();
  for (const storage::LayerRef& layer : layers) {
    overlay.layers.push_back("layers/" + layer.id + "/tree");
  }
  const std::string directory = "workspaces/" + row.name;
  overlay.upper = directory + "/tree";
  overlay.work = directory + "/work";
  overlay.place = directory + "/stage";
  return overlay;
}

// Where the workspace has a file system of its own, that is what the sandbox gets.
Status give_disk(WorkspaceStore& store, const storage::WorkspaceRow& row, GivenTree& tree) {
  CARREL_ASSIGN(UniqueFd mount, store.mount(row));
  if (!mount.valid()) {
    return {};
  }
  CARREL_TRY(storage::start_disk_watch(store.home()));
  tree.standing = GivenTree::Standing::kNowhere;
  tree.own_bytes = row.disk_bytes;
  if (!tree.overlay.has_value()) {
    CARREL_ASSIGN(tree.source, kernel::split_mount(std::move(mount), "tree"));
    return {};
  }
  tree.source = std::move(mount);
  const std::string directory = "workspaces/" + row.name;
  tree.overlay->mount = directory + "/mount";
  tree.overlay->upper = directory + "/mount/tree";
  tree.overlay->work = directory + "/mount/work";
  return {};
}

}  // namespace

Result<UsedWorkspace> use_workspace(const storage::Home& home, const policy::Spec& spec) {
  CARREL_ASSIGN(WorkspaceStore store, WorkspaceStore::open(home));
  storage::WorkspaceRow wanted;
  wanted.name = spec.workspace;
  wanted.created_ms = storage::wall_clock_ms();
  wanted.used_ms = wanted.created_ms;
  wanted.disk_bytes = spec.limits.disk_bytes;
  CARREL_ASSIGN(storage::WorkspaceRow row, store.ensure(wanted));
  UsedWorkspace used;
  CARREL_ASSIGN(used.lock, store.lock(row));
  CARREL_TRY(check_boxes(home, spec));
  CARREL_ASSIGN(used.use, store.use(row, spec.workspace_use == policy::WorkspaceUse::kShared
                                             ? WorkspaceStore::Sharing::kShared
                                             : WorkspaceStore::Sharing::kAlone));
  CARREL_ASSIGN(row, store.find(row.name));
  if (const auto box = storage::stands_for(store, row.name); box.has_value()) {
    return Error{Code::kConflict, 0,
                 "sandbox " + box->id + " has the files of '" + row.name + "' in its memory",
                 "fork it, or remove it first"};
  }
  CARREL_TRY(storage::settle_stand_in(store, row));
  CARREL_ASSIGN(row, store.find(row.name));
  if (!row.restoring.empty()) {
    storage::NoWriters nobody;  // runs in it: that was made sure of
    CARREL_TRY(storage::finish_restore(store, row, nobody));
  }
  CARREL_TRY(store.records().touch(row.name));
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(row));
  CARREL_TRY(WorkspaceStore::clear_stage(directory));
  CARREL_ASSIGN(used.tree.source,
                open_at(directory.get(), "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW));
  used.tree.path = home.path() + "/workspaces/" + row.name + "/tree";
  used.tree.target = kWorkspace;
  used.tree.kind = GivenTree::Kind::kFolder;
  used.tree.mode = policy::MountMode::kReadWrite;
  used.tree.owner = {storage::kWorkspaceId, storage::kWorkspaceId};
  if (row.form == storage::TreeForm::kUpper) {
    CARREL_ASSIGN(const std::vector<storage::LayerRef> layers,
                  store.records().base_layers(row.name));
    used.tree.overlay = overlay_of(home, row, layers);
  }
  CARREL_TRY(give_disk(store, row, used.tree));
  return used;
}

}  // namespace carrel::native
