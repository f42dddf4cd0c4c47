#include "storage/workspaces/source.h"

#include "storage/state.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/taking.h"

namespace carrel::storage {

namespace {

// The copy as a layer, and the snapshot that will be that.
Status take(WorkspaceStore& store, const WorkspaceSource& source,
            const WorkspaceStore::Draft& draft, SnapshotRow& snapshot) {
  const TreeIndex nothing;
  LayerRequest request{source.directory, TreeForm::kPlain, nothing, draft.tree.get(), {},
                       source.without};
  CARREL_ASSIGN(TakenLayer taken, take_layer(request));
  snapshot.id = random_hex(12);
  snapshot.name = kOrigin;
  snapshot.asked = SnapshotRow::Asked::kNo;
  snapshot.created_ms = wall_clock_ms();
  snapshot.changed = taken.changes.size();
  snapshot.bytes = taken.bytes;
  CARREL_ASSIGN(LayerRef layer, store.finish_layer(draft, taken.changes, taken.files));
  snapshot.layers.push_back(std::move(layer));
  return {};
}

// CRITICAL: that the tree is still to be made is stored before there is something that it should
// be: an empty tree beside it would say that everything was removed.
Status fill(WorkspaceStore& store, const WorkspaceRow& row, const SnapshotRow& snapshot) {
  CARREL_TRY(store.records().set_restoring(row.name, snapshot.id));
  CARREL_TRY(store.records().add_snapshot(snapshot));
  CARREL_ASSIGN(const UniqueFd lock, store.lock(row));
  CARREL_ASSIGN(const WorkspaceRow now, store.find(row.name));
  NoWriters nobody;  // has it yet
  return finish_restore(store, now, nobody);
}

}  // namespace

Result<WorkspaceRow> copy_workspace(WorkspaceStore& store, WorkspaceRow row,
                                    const WorkspaceSource& source) {
  row.source = source.path;
  CARREL_ASSIGN(const std::optional<WorkspaceRow> taken, store.records().find(row.name));
  if (taken.has_value()) {
    return Error{Code::kConflict, 0, "there is already a workspace '" + row.name + "'", {}};
  }
  CARREL_ASSIGN(const WorkspaceStore::Draft draft, store.make_layer());
  SnapshotRow snapshot;
  snapshot.workspace = row.name;
  if (Status copied = take(store, source, draft, snapshot); !copied.ok()) {
    store.drop_layer(draft);
    return copied.error();
  }
  if (Status made = store.make(row); !made.ok()) {
    store.drop_layer(draft);
    return made.error();
  }
  if (Status filled = fill(store, row, snapshot); !filled.ok()) {
    (void)store.remove(row.name);
    return filled.error();
  }
  return store.find(row.name);
}

}  // namespace carrel::storage
