#include "storage/workspaces/snapshot.h"

#include <fcntl.h>

#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "storage/state.h"
#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/flatten.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/quiet.h"
#include "storage/workspaces/taking.h"
#include "storage/workspaces/watching.h"

namespace carrel::storage {

namespace {

using Clock = std::chrono::steady_clock;

// What the tree is compared with, and the layers that are that.
struct Before {
  TreeIndex index;
  std::vector<LayerRef> layers;
  std::optional<SnapshotRow> head;  // if the layers are those of the last snapshot
};

Result<Before> look_before(WorkspaceStore& store, const WorkspaceRow& workspace, int directory) {
  Before before;
  if (workspace.head.empty() || workspace.head == workspace.base) {
    CARREL_ASSIGN(before.layers, store.records().base_layers(workspace.name));
    return before;
  }
  CARREL_ASSIGN(const SnapshotRow head, store.snapshot(workspace.head));
  // In memory a write through a mapping changes no time: no evidence is kept of that.
  if (!store.is_shown(workspace.name)) {
    before.index = read_index(directory, "index", head.id);
  }
  before.layers = head.layers;
  before.head = head;
  if (before.index.size() > 0) {
    return before;
  }
  if (workspace.form == TreeForm::kUpper) {
    CARREL_ASSIGN(before.layers, store.records().base_layers(workspace.name));
    before.head.reset();
    return before;
  }
  // Without evidence contents are compared by their hashes.
  CARREL_ASSIGN(Tree tree, store.read_tree(head.layers));
  IndexBuilder index(tree.size() + 1);
  ScannedEntry entry;
  entry.kind = EntryKind::kDirectory;
  index.add(entry);  // the top
  for (auto& [path, node] : tree) {
    static_cast<TreeEntry&>(entry) = std::move(node.entry);
    index.add(entry);
  }
  before.index = index.finish(0);
  return before;
}

// CRITICAL: a snapshot of what was lost would pass for what was written.
Status check_undamaged(const WorkspaceRow& workspace, int place) {
  Status sound = check_disk(place);
  if (!sound.ok()) {
    sound.error().message =
        "no snapshot is taken of the workspace '" + workspace.name + "': " + sound.error().message;
  }
  return sound;
}

Status hold_last(WorkspaceStore& store, const std::string& snapshot, const std::string& holder) {
  return holder.empty() ? Status{} : store.records().hold(snapshot, holder);
}

// Lets the writers go on once, at the latest when it goes out of scope.
class Standstill {
 public:
  static Result<Standstill> begin(Writers& writers) {
    CARREL_TRY(writers.freeze());
    return Standstill(writers);
  }
  Standstill(Standstill&& other) noexcept
      : writers_(std::exchange(other.writers_, nullptr)), began_(other.began_) {}
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;
  Standstill& operator=(Standstill&&) = delete;
  ~Standstill() { end(); }
  void end() {
    if (writers_ != nullptr) {
      std::exchange(writers_, nullptr)->thaw();
      took_ = Clock::now() - began_;
    }
  }
  [[nodiscard]] std::int64_t microseconds() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(took_).count();
  }

 private:
  explicit Standstill(Writers& writers) : writers_(&writers), began_(Clock::now()) {}
  Writers* writers_;
  Clock::time_point began_;
  Clock::duration took_{};
};

// Writes the index of a tree while the disk is busy with its layer.
class IndexInTheMaking {
 public:
  IndexInTheMaking(int directory, const TreeScan& scan, const TreeIndex& before,
                   const std::string& snapshot) {
    const auto make = [this, directory, &scan, &before, snapshot] {
      TreeIndex index = scan.make_index(before);
      index.set_snapshot(snapshot);
      drafted_ = draft_index(directory, "index", index);
    };
    try {
      thread_ = std::thread(make);
    } catch (const std::system_error&) {
      make();
    }
  }
  IndexInTheMaking(const IndexInTheMaking&) = delete;
  IndexInTheMaking& operator=(const IndexInTheMaking&) = delete;
  ~IndexInTheMaking() { wait(); }
  // It counts from now on, unless it could not be written.
  bool place(int directory) {
    wait();
    return drafted_.ok() && place_index(directory, "index").ok();
  }

 private:
  void wait() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  std::thread thread_;
  Status drafted_;
};

}  // namespace

Result<SnapshotRow> take_snapshot(WorkspaceStore& store, const WorkspaceRow& workspace,
                                  const SnapshotOptions& options, Writers& writers) {
  const Unchanged unchanged = options.unchanged;
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(workspace));
  CARREL_ASSIGN(const UniqueFd tree, store.open_tree(workspace));
  const bool shown = store.is_shown(workspace.name);
  CARREL_ASSIGN(const UniqueFd place, store.open_place(workspace.name));
  if (unchanged == Unchanged::kLastOne && !shown && !workspace.head.empty() &&
      Quiet(place.get(), tree.get()).was(workspace.head)) {
    CARREL_TRY(hold_last(store, workspace.head, options.holder));
    return store.snapshot(workspace.head);
  }
  const bool disk = has_disk(place.get());
  if (disk) {
    CARREL_TRY(check_undamaged(workspace, place.get()));
  }
  Watching watching(writers, tree.get(),
                    !shown && !disk && workspace.form == TreeForm::kPlain ? Watching::Use::kPossible
                                                                          : Watching::Use::kNone);
  std::optional<Standstill> standstill;
  if (unchanged == Unchanged::kLastOne && watching.is_possible()) {
    CARREL_ASSIGN(Standstill begun, Standstill::begin(writers));
    standstill.emplace(std::move(begun));
    watching.ask();
    if (watching.keep_if_still(workspace.head)) {
      standstill->end();
      CARREL_TRY(hold_last(store, workspace.head, options.holder));
      return store.snapshot(workspace.head);
    }
  }
  CARREL_ASSIGN(Before before, look_before(store, workspace, directory.get()));
  CARREL_ASSIGN(WorkspaceStore::Draft draft, store.make_layer());
  const std::optional<InodeTables> tables =
      !shown && disk ? InodeTables::open(tree.get()) : std::nullopt;
  if (!standstill.has_value()) {
    CARREL_ASSIGN(Standstill begun, Standstill::begin(writers));
    standstill.emplace(std::move(begun));
    watching.ask();
  }
  const Quiet quiet(place.get(), tree.get());
  bool still = false;
  LayerRequest request{
      tree.get(), workspace.form, before.index, draft.tree.get(), [&](Found found) {
        still = found == Found::kNothingNew && unchanged == Unchanged::kLastOne && quiet.still();
        standstill->end();
      }};
  request.tables = tables.has_value() ? &*tables : nullptr;
  request.watch = watching.for_walk(before.index);
  request.most = options.most;
  if (shown) {
    request.without.insert(kStageInTree);
  }
  auto taken = take_layer(request);
  if (!taken.ok()) {
    standstill->end();
    store.drop_layer(draft);
    return taken.error();
  }
  const bool last_one =
      unchanged == Unchanged::kLastOne && taken->changes.empty() && before.head.has_value();
  if (last_one) {
    store.drop_layer(draft);
    if (!shown && !taken->scan.entries.empty()) {
      IndexInTheMaking index(directory.get(), taken->scan, before.index, before.head->id);
      if (index.place(directory.get())) {
        watching.keep(before.head->id, taken->scan.began_ns);
      }
    } else {
      watching.keep(before.head->id, before.index.began_ns());
      if (still) {
        quiet.note(before.head->id);
      }
    }
    CARREL_TRY(hold_last(store, before.head->id, options.holder));
    return *before.head;
  }
  SnapshotRow row;
  row.id = random_hex(12);
  row.workspace = workspace.name;
  row.name = options.name;
  row.asked = options.asked;
  row.created_ms = wall_clock_ms();
  row.frozen_us = standstill->microseconds();
  row.changed = taken->changes.size();
  row.bytes = taken->bytes;
  row.layers = std::move(before.layers);
  std::optional<IndexInTheMaking> index;
  if (!shown) {
    index.emplace(directory.get(), taken->scan, before.index, row.id);
  }
  // Without a change the layer would say nothing.
  if (!taken->changes.empty() || row.layers.empty()) {
    CARREL_ASSIGN(LayerRef layer, store.finish_layer(draft, taken->changes, taken->files));
    if (layer.bytes > options.most) {
      store.drop_layer(draft);
      return no_room_for_layer();
    }
    row.layers.push_back(std::move(layer));
  } else {
    store.drop_layer(draft);
  }
  // What the walk has synced could have been lost only then.
  if (disk) {
    CARREL_TRY(check_undamaged(workspace, place.get()));
  }
  if (Status added = store.records().add_snapshot(row, options.holder); !added.ok()) {
    if (added.error().code == Code::kConflict) {  // else nobody knows whether it was stored
      store.drop_layer(draft);
    }
    return added.error();
  }
  if (index.has_value() && index->place(directory.get())) {
    watching.keep(row.id, taken->scan.began_ns);
  }
  draft.directory.reset();    // nobody takes away what is held, were it needed no more
  (void)flatten(store, row);  // it is as good without, and the next one tries again
  return row;
}

}  // namespace carrel::storage
