#include <fcntl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/output.h"
#include "journal/tree_identity.h"
#include "manager/workspace_target.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/snapshot.h"

// What journal::WorkspaceFiles runs:
//
//   checkpoint keep WORKSPACE [HOLDER]
//   checkpoint put-back WORKSPACE SNAPSHOT
namespace carrel::cli {
namespace {

using Json = nlohmann::ordered_json;
using storage::EntryKind;
using storage::TreeEntry;

bool is_work(const TreeEntry& entry) {
  return entry.kind != EntryKind::kDirectory &&
         !storage::lies_in(entry.path, journal::kOutputFolder);
}

// The files that the newest layer of a snapshot has or takes away.
Result<std::size_t> count_changed(storage::WorkspaceStore& store,
                                  const storage::SnapshotRow& snapshot) {
  if (snapshot.layers.empty()) {
    return std::size_t{0};
  }
  CARREL_ASSIGN(const std::vector<TreeEntry> changes, store.read_changes(snapshot.layers.back()));
  return static_cast<std::size_t>(std::count_if(changes.begin(), changes.end(), is_work));
}

Result<Json> keep(manager::WorkspaceTarget& at, const std::string& holder) {
  const std::string before = at.row.head;
  // No person has asked for it: it goes with the workspace, if that goes with an execution.
  CARREL_ASSIGN(const storage::SnapshotRow row,
                storage::take_snapshot(*at.store, at.row,
                                       {.holder = holder,
                                        .unchanged = storage::Unchanged::kLastOne,
                                        .asked = storage::SnapshotRow::Asked::kNo},
                                       *at.writers));
  CARREL_ASSIGN(const storage::Tree tree, at.store->read_tree(row.layers));
  std::size_t changed = 0;
  if (row.id != before) {
    CARREL_ASSIGN(changed, count_changed(*at.store, row));
  }
  return Json{{"snapshot", row.id}, {"identity", journal::identity_of(tree)}, {"changed", changed}};
}

Result<Json> put_back(manager::WorkspaceTarget& at, const std::string& named) {
  if (!at.boxes.empty()) {
    return Error{
        Code::kConflict, 0,
        "the workspace '" + at.row.name + "' cannot be put back while a sandbox runs in it",
        "end it first: carrel rm " + at.boxes.front().id};
  }
  CARREL_ASSIGN(const storage::SnapshotRow snapshot, at.store->snapshot(named));
  CARREL_TRY(storage::restore_snapshot(*at.store, at.row, snapshot, *at.writers));
  return Json{{"snapshot", snapshot.id}};
}

Result<Json> work(const std::vector<std::string_view>& words) {
  CARREL_ASSIGN(const std::unique_ptr<manager::WorkspaceTarget> at,
                manager::open_workspace_target(std::string(words[1])));
  CARREL_ASSIGN(const UniqueFd alone, manager::keep_runs_away(*at));
  const std::string last(words.size() > 2 ? words[2] : std::string_view());
  if (words[0] == "keep") {
    return keep(*at, last);
  }
  if (words[0] == "put-back" && !last.empty()) {
    return put_back(*at, last);
  }
  return Error{Code::kInvalid, 0, "checkpoint takes no such words", {}};
}

}  // namespace

int checkpoint_command(const Context& context) {
  // The lock of the run that started this: for this process, and not for what it may leave behind.
  (void)::fcntl(3, F_SETFD, FD_CLOEXEC);
  auto done = work(context.arguments.operands);
  if (!done.ok()) {
    return fail(context, done.error());
  }
  print(done->dump() + "\n");
  return 0;
}

}  // namespace carrel::cli
