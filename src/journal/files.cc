#include "journal/files.h"

#include "journal/json_text.h"
#include "manager/self.h"
#include "storage/state.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::journal {

Result<FilesMark> WorkspaceFiles::keep(const std::string& holder) {
  std::vector<std::string> words = {"checkpoint", "--json", "keep", workspace_};
  if (!holder.empty()) {
    words.push_back(holder);
  }
  CARREL_ASSIGN(const std::string answer, manager::ask_self(words, {program_, lock_}));
  CARREL_ASSIGN(const Json json, parse_json(answer, "what 'carrel checkpoint' says"));
  FilesMark mark;
  mark.snapshot = json.value("snapshot", "");
  mark.identity = json.value("identity", "");
  mark.changed = json.value("changed", std::uint64_t{0});
  return mark;
}

Status WorkspaceFiles::put_back(const std::string& snapshot) {
  CARREL_TRY(manager::ask_self({"checkpoint", "--json", "put-back", workspace_, snapshot},
                               {program_, lock_}));
  return {};
}

Status make_workspace_from(const storage::Home& home, const std::string& snapshot,
                           const std::string& name, const std::string& goes_with) {
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  CARREL_ASSIGN(const storage::SnapshotRow from, store.snapshot(snapshot));
  CARREL_ASSIGN(const auto origin, store.records().find(from.workspace));
  storage::WorkspaceRow row;
  row.name = name;
  row.form = storage::TreeForm::kUpper;
  row.created_ms = storage::wall_clock_ms();
  row.used_ms = row.created_ms;
  row.disk_bytes = origin.has_value() ? origin->disk_bytes : 0;
  row.base = from.id;
  row.head = from.id;
  row.for_box = goes_with;
  CARREL_TRY(store.make(row));
  CARREL_TRY(store.open_directory(row));
  return {};
}

}  // namespace carrel::journal
