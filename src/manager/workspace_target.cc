#include "manager/workspace_target.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "backends/native/memory_workspace.h"
#include "backends/native/remains.h"
#include "base/files.h"
#include "manager/ledger.h"
#include "policy/spec_json.h"
#include "storage/state.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/rights.h"
#include "storage/workspaces/stand_in.h"

namespace carrel::manager {

namespace {

// What a word names, and the sandbox that has it in memory, if one has.
struct Named {
  std::string workspace;
  std::optional<storage::BoxRecord> memory;
};

Result<Named> find_named(storage::WorkspaceStore& store, const std::string& named) {
  auto box = storage::find_box(store.home(), named);
  CARREL_ASSIGN(const auto known, store.records().find(named));
  // A workspace's whole name is meant before the beginning of a sandbox's id.
  const bool exact = box.ok() && (box->id == named || box->name == named);
  if (known.has_value() && !exact) {
    return Named{named, storage::stands_for(store, named)};
  }
  if (!box.ok() && box.error().code != Code::kNotFound) {
    return box.error();
  }
  if (!box.ok()) {
    return Named{named, std::nullopt};
  }
  CARREL_ASSIGN(std::string name, workspace_of(store, box->id));
  if (!name.empty()) {
    return Named{std::move(name), std::nullopt};
  }
  CARREL_ASSIGN(Ledger ledger, Ledger::open(store.records().database()));
  CARREL_ASSIGN(const std::string owner, ledger.owner_of(box->id));
  CARREL_ASSIGN(const storage::WorkspaceRow row, storage::ensure_stand_in(store, box->id, owner));
  return Named{row.name, std::move(box.value())};
}

}  // namespace

void finish_restore_apart(const std::string& workspace) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(open_workspace_target(workspace).ok() ? 0 : 1);
  }
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> workspace_of(storage::WorkspaceStore& store, const std::string& id) {
  CARREL_ASSIGN(storage::State state, storage::State::open(store.records().database()));
  CARREL_ASSIGN(const std::optional<storage::SandboxRow> row, state.find(id));
  if (!row.has_value()) {
    return storage::no_such_box(id);
  }
  CARREL_ASSIGN(const policy::Spec spec, policy::spec_from_json(row->spec));
  return spec.workspace;
}

Result<BoxesWith> boxes_with(storage::WorkspaceStore& store, const std::string& workspace) {
  CARREL_ASSIGN(storage::State state, storage::State::open(store.records().database()));
  CARREL_ASSIGN(const std::vector<storage::SandboxRow> rows,
                state.list(storage::State::Which::kLive));
  BoxesWith boxes;
  for (const storage::SandboxRow& row : rows) {
    auto spec = policy::spec_from_json(row.spec);
    if (!spec.ok() || spec->workspace != workspace) {
      continue;
    }
    if (auto record = storage::read_record(store.home(), row.id);
        record.ok() && storage::is_alive(record.value())) {
      boxes.records.push_back(std::move(record.value()));
      boxes.all_native = boxes.all_native && spec->backend == policy::Backend::kNative;
    }
  }
  return boxes;
}

Result<storage::SnapshotRow> find_snapshot(WorkspaceTarget& target, const std::string& named) {
  const std::size_t slash = named.find('/');
  if (slash == std::string::npos) {
    return target.store->find_snapshot(target.row, named);
  }
  CARREL_ASSIGN(const storage::WorkspaceRow other, target.store->find(named.substr(0, slash)));
  return target.store->find_snapshot(other, named.substr(slash + 1));
}

Result<UniqueFd> keep_runs_away(WorkspaceTarget& target) {
  return target.store->use(target.row, storage::WorkspaceStore::Sharing::kAlone);
}

Result<std::unique_ptr<WorkspaceTarget>> open_workspace_target(const std::string& named) {
  CARREL_ASSIGN(storage::Home home, storage::Home::open());
  auto target = std::make_unique<WorkspaceTarget>(std::move(home));
  native::sweep_quickly(target->home);
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(target->home));
  target->store.emplace(std::move(store));
  CARREL_ASSIGN(const Named found, find_named(*target->store, named));
  const std::string& name = found.workspace;
  if (found.memory.has_value()) {
    CARREL_ASSIGN(UniqueFd files, native::open_memory_workspace(*found.memory));
    target->store->show(name, std::move(files));
  }
  storage::gain_rights_over_own_files();
  auto row = target->store->find(name);
  if (!row.ok()) {
    if (row.error().code == Code::kNotFound) {
      row.error().message = "there is no sandbox and no workspace '" + named + "'";
      row.error().hint = "see 'carrel ls' and 'carrel workspace ls'";
    }
    return row.error();
  }
  CARREL_ASSIGN(target->lock, target->store->lock(row.value()));
  CARREL_ASSIGN(target->row, target->store->find(name));  // as it is under the lock
  auto watched = native::BoxWriters::Watched::kNo;
  if (found.memory.has_value()) {
    target->boxes.push_back(*found.memory);
    // What a restore has left that was killed before it began.
    CARREL_ASSIGN(const UniqueFd files, target->store->open_tree(target->row));
    CARREL_TRY(remove_tree_at(files.get(), storage::kStageInTree));
  } else {
    CARREL_TRY(storage::settle_stand_in(*target->store, target->row));
    CARREL_ASSIGN(target->row, target->store->find(name));
    CARREL_ASSIGN(BoxesWith boxes, boxes_with(*target->store, name));
    // Several in one workspace would have to be looked at together.
    if (boxes.all_native && boxes.records.size() == 1) {
      watched = native::BoxWriters::Watched::kYes;
    }
    target->boxes = std::move(boxes.records);
  }
  target->writers.emplace(target->home, target->boxes, watched);
  if (!target->row.restoring.empty()) {
    CARREL_TRY(storage::finish_restore(*target->store, target->row, *target->writers));
    CARREL_ASSIGN(target->row, target->store->find(name));
  }
  return target;
}

}  // namespace carrel::manager
