#include "storage/workspaces/source.h"

#include "storage/state.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/taking.h"

namespace carrel::storage {

namespace {

// Nobody has it yet.
class Nobody : public Writers {
 public:
  Status freeze() override { return {}; }
  void thaw() override {}
};

Status fill(WorkspaceStore& store, const WorkspaceRow& row, const WorkspaceSource& source) {
  const TreeIndex nothing;
  CARREL_ASSIGN(const WorkspaceStore::Draft draft, store.make_layer());
  LayerRequest request{source.directory, TreeForm::kPlain, nothing, draft.tree.get(), {},
                       source.without};
  CARREL_ASSIGN(TakenLayer taken, take_layer(request));
  SnapshotRow snapshot;
  snapshot.id = random_hex(12);
  snapshot.workspace = row.name;
  snapshot.name = kOrigin;
  snapshot.created_ms = wall_clock_ms();
  snapshot.changed = taken.changes.size();
  snapshot.bytes = taken.bytes;
  CARREL_ASSIGN(LayerRef layer, store.finish_layer(draft, taken.changes));
  snapshot.layers.push_back(std::move(layer));
  CARREL_TRY(store.records().add_snapshot(snapshot));
  Nobody nobody;
  return restore_snapshot(store, row, snapshot, nobody);
}

}  // namespace

Result<WorkspaceRow> copy_workspace(WorkspaceStore& store, WorkspaceRow row,
                                    const WorkspaceSource& source) {
  row.source = source.path;
  CARREL_TRY(store.records().add(row));
  CARREL_TRY(store.open_directory(row));
  if (Status filled = fill(store, row, source); !filled.ok()) {
    (void)store.remove(row.name);
    return filled.error();
  }
  return store.find(row.name);
}

}  // namespace carrel::storage
