#include <sys/file.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/native/remains.h"
#include "base/files.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "cli/snapshot_text.h"
#include "cli/table.h"
#include "manager/workspace_target.h"
#include "policy/size.h"
#include "storage/disk_use.h"
#include "storage/state.h"
#include "storage/workspaces/check.h"
#include "storage/workspaces/disk_room.h"
#include "storage/workspaces/rights.h"
#include "storage/workspaces/stand_in.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using storage::WorkspaceRow;
using storage::WorkspaceStore;

std::string to_text(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string how_long_ago(std::int64_t ms) { return age(storage::wall_clock_ms() - ms) + " ago"; }

// Who has it now, in words; empty: nobody.
std::string user_of(WorkspaceStore& store, const WorkspaceRow& row) {
  auto boxes = manager::boxes_with(store, row.name);
  if (boxes.ok() && !boxes->records.empty()) {
    const storage::BoxRecord& box = boxes->records.front();
    return box.name.empty() ? box.id : box.name;
  }
  if (const auto box = storage::stands_for(store, row.name); box.has_value()) {
    return box->name.empty() ? box->id : box->name;
  }
  return store.is_used(row) ? "a run" : "";
}

struct Held {
  std::optional<std::uint64_t> bytes = {};  // none: it cannot be gone through
  std::uint64_t entries = 0;
  std::uint64_t on_disk = 0;  // what the host's disk has of it
};

Held look_into(WorkspaceStore& store, const WorkspaceRow& row) {
  auto directory = store.open_directory(row);
  auto tree = directory.ok() ? open_at(directory->get(), "tree", O_RDONLY | O_DIRECTORY)
                             : Result<UniqueFd>(directory.error());
  auto scan = tree.ok() ? storage::scan_tree(tree->get(), row.form)
                        : Result<storage::TreeScan>(tree.error());
  auto use = storage::look_at_disk_use_of(store.home(), "workspaces/" + row.name);
  const std::uint64_t on_disk = use.ok() ? use->bytes : 0;
  return scan.ok() ? Held{scan->bytes, scan->entries.size(), on_disk} : Held{.on_disk = on_disk};
}

int list_workspaces(const Context& context, WorkspaceStore& store) {
  auto rows = store.records().list();
  auto snapshots = store.records().snapshots("");
  if (!rows.ok() || !snapshots.ok()) {
    return fail(context, rows.ok() ? snapshots.error() : rows.error());
  }
  std::vector<std::vector<std::string>> lines = {
      {"NAME", "SIZE", "ON DISK", "LIMIT", "FILES", "SNAPSHOTS", "LAST USED", "IN USE BY"}};
  Json list = Json::array();
  for (const WorkspaceRow& row : rows.value()) {
    const Held held = look_into(store, row);
    const auto taken = std::count_if(snapshots->begin(), snapshots->end(),
                                     [&](const auto& one) { return one.workspace == row.name; });
    const std::string user = user_of(store, row);
    const bool is_known = held.bytes.has_value();
    lines.push_back({row.name, is_known ? size_text(*held.bytes) : "-", size_text(held.on_disk),
                     row.disk_bytes == 0 ? "-" : size_text(row.disk_bytes),
                     is_known ? std::to_string(held.entries) : "-", std::to_string(taken),
                     how_long_ago(row.used_ms), user.empty() ? "-" : user});
    list.push_back(Json{{"name", row.name},
                        {"size_bytes", is_known ? Json(*held.bytes) : Json()},
                        {"disk_bytes", held.on_disk},
                        {"limit_bytes", row.disk_bytes},
                        {"entries", is_known ? Json(held.entries) : Json()},
                        {"snapshots", taken},
                        {"created_ms", row.created_ms},
                        {"used_ms", row.used_ms},
                        {"fork_of", row.base},
                        {"in_use_by", user}});
  }
  print(context.json() ? to_text(Json{{"workspaces", list}}) : table(lines));
  return 0;
}

int show_history(const Context& context, WorkspaceStore& store, const Words& words) {
  if (words.size() != 1) {
    return fail(context, Error{Code::kInvalid, 0, "workspace history needs one NAME", {}});
  }
  auto row = store.find(words.front());
  auto snapshots = row.ok() ? store.records().snapshots(row->name)
                            : Result<std::vector<storage::SnapshotRow>>(row.error());
  if (!snapshots.ok()) {
    return fail(context, snapshots.error());
  }
  if (context.json()) {
    Json list = Json::array();
    for (const storage::SnapshotRow& one : snapshots.value()) {
      list.push_back(Json::parse(snapshot_json(one)));
    }
    print(to_text(Json{{"workspace", row->name}, {"head", row->head}, {"snapshots", list}}));
    return 0;
  }
  std::vector<std::vector<std::string>> lines = {
      {"SNAPSHOT", "NAME", "TAKEN", "CHANGED", "COPIED", ""}};
  for (const storage::SnapshotRow& one : snapshots.value()) {
    lines.push_back({one.id, one.name.empty() ? "-" : one.name, how_long_ago(one.created_ms),
                     std::to_string(one.changed), size_text(one.bytes),
                     one.id == row->head ? "newest here" : ""});
  }
  print(table(lines));
  return 0;
}

// Removes it if nobody has it.
Status remove_one(WorkspaceStore& store, const std::string& name) {
  CARREL_ASSIGN(const WorkspaceRow row, store.find(name));
  CARREL_ASSIGN(const UniqueFd lock, store.lock(row));
  if (const std::string user = user_of(store, row); !user.empty()) {
    return Error{Code::kConflict, 0, "the workspace '" + name + "' is in use by " + user, {}};
  }
  CARREL_ASSIGN(const UniqueFd use, store.use(row, WorkspaceStore::Sharing::kAlone));
  return store.remove(name);
}

int report_removed(const Context& context, const Words& removed, const Status& failed) {
  if (context.json()) {
    print(to_text(Json{{"removed", removed}}));
  } else {
    for (const std::string& name : removed) {
      print(name + "\n");
    }
  }
  return failed.ok() ? 0 : fail(context, failed.error());
}

int remove_named(const Context& context, WorkspaceStore& store, const Words& words) {
  if (words.empty()) {
    return fail(context, Error{Code::kInvalid, 0, "workspace rm needs a NAME", {}});
  }
  Words removed;
  Status failed;
  for (const std::string& name : words) {
    if (failed = remove_one(store, name); !failed.ok()) {
      break;
    }
    removed.push_back(name);
  }
  return report_removed(context, removed, failed);
}

int prune(const Context& context, WorkspaceStore& store, const Words& words) {
  const auto given = context.arguments.value(OptionId::kOlderThan);
  if (!words.empty() || !given.has_value()) {
    return fail(context, Error{Code::kInvalid, 0, "workspace prune needs --older-than TIME",
                               "30d, for instance; it removes what no sandbox had for so long"});
  }
  auto time = policy::parse_duration({"--older-than", *given});
  auto rows = store.records().list();
  if (!time.ok() || !rows.ok()) {
    return fail(context, time.ok() ? rows.error() : time.error());
  }
  Words removed;
  for (const WorkspaceRow& row : rows.value()) {
    if (storage::wall_clock_ms() - row.used_ms < time->count()) {
      continue;
    }
    if (Status gone = remove_one(store, row.name); gone.ok()) {
      removed.push_back(row.name);
    } else if (!context.json()) {  // in use, or what turns of flows refer to
      print_error("carrel: it stays: " + printable(gone.error().to_string()) + "\n");
    }
  }
  return report_removed(context, removed, {});
}

int forget(const Context& context, WorkspaceStore& store, const Words& words) {
  if (words.empty()) {
    return fail(context, Error{Code::kInvalid, 0, "workspace forget needs a SNAPSHOT", {}});
  }
  Words removed;
  Status failed;
  for (const std::string& named : words) {
    auto snapshot = store.find_snapshot_anywhere(named);
    failed =
        snapshot.ok() ? store.records().remove_snapshot(snapshot->id) : Status(snapshot.error());
    if (!failed.ok()) {
      break;
    }
    removed.push_back(snapshot->id);
  }
  if (Status swept = store.sweep(); failed.ok()) {
    failed = std::move(swept);
  }
  return report_removed(context, removed, failed);
}

int check(const Context& context, WorkspaceStore& store) {
  auto report = storage::check_workspaces(store);
  if (!report.ok()) {
    return fail(context, report.error());
  }
  if (context.json()) {
    print(to_text(Json{{"workspaces", report->workspaces},
                       {"snapshots", report->snapshots},
                       {"layers", report->layers},
                       {"files", report->files},
                       {"bytes", report->bytes},
                       {"problems", report->problems}}));
  } else {
    for (const std::string& problem : report->problems) {
      print_error("carrel: " + printable(problem) + "\n");
    }
    print(std::to_string(report->workspaces) + " workspaces, " + std::to_string(report->snapshots) +
          " snapshots, " + std::to_string(report->layers) + " layers, " +
          std::to_string(report->files) + " files, " + size_text(report->bytes) + ": " +
          (report->problems.empty() ? "all as they were stored"
                                    : std::to_string(report->problems.size()) + " problems") +
          "\n");
  }
  return report->problems.empty() ? 0 : 1;
}

}  // namespace

int workspace_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  storage::gain_rights_over_own_files();
  auto store = WorkspaceStore::open(home.value());
  if (!store.ok()) {
    return fail(context, store.error());
  }
  if (Status swept = store->sweep(); !swept.ok()) {
    return fail(context, swept.error());
  }
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const std::string_view action = operands.front();
  const Words words(operands.begin() + 1, operands.end());
  if (action == "ls" && words.empty()) {
    return list_workspaces(context, store.value());
  }
  if (action == "history") {
    return show_history(context, store.value(), words);
  }
  if (action == "rm") {
    return remove_named(context, store.value(), words);
  }
  if (action == "prune") {
    return prune(context, store.value(), words);
  }
  if (action == "forget") {
    return forget(context, store.value(), words);
  }
  if (action == "fsck" && words.empty()) {
    return check(context, store.value());
  }
  return fail(context,
              Error{Code::kInvalid, 0, "workspace " + std::string(action) + " takes no such words",
                    "see 'carrel help workspace'"});
}

int disk_watch_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  return storage::run_disk_watch(home.value());
}

}  // namespace carrel::cli
