#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/native/remains.h"
#include "base/code_name.h"
#include "cli/context.h"
#include "cli/flow.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "journal/journal.h"
#include "manager/owned.h"
#include "policy/size.h"
#include "storage/disk_use.h"
#include "storage/images/image_use.h"
#include "storage/state.h"
#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/disk_room.h"
#include "storage/workspaces/rights.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;
using storage::WorkspaceStore;

// One thing that can go.
struct Item {
  std::string kind;
  std::string name;
  std::string why;
  std::uint64_t bytes = 0;  // about; what really was given back is measured
};

struct Wanted {
  bool dry_run = false;
  bool flows = false;
  bool snapshots = false;
  std::int64_t before_ms = 0;  // of flows and snapshots
};

Result<Wanted> wanted_by(const Arguments& arguments) {
  Wanted wanted;
  wanted.dry_run = arguments.has(OptionId::kDryRun);
  wanted.flows = arguments.has(OptionId::kFlows);
  wanted.snapshots = arguments.has(OptionId::kSnapshots);
  const auto age = arguments.value(OptionId::kOlderThan);
  const bool by_age = wanted.flows || wanted.snapshots;
  if (by_age != age.has_value()) {
    return by_age ? Error{Code::kInvalid, 0, "--flows and --snapshots need --older-than TIME",
                          "30d, for instance"}
                  : Error{Code::kInvalid, 0, "--older-than belongs to --flows and --snapshots", {}};
  }
  if (age.has_value()) {
    CARREL_ASSIGN(const auto time, policy::parse_duration({"--older-than", *age}));
    wanted.before_ms = storage::wall_clock_ms() - time.count();
  }
  return wanted;
}

// What `carrel prune` finds, and removes. Each step looks for itself: what was found before may be
// in use, and what a step removes may set others free.
class Pruning {
 public:
  Pruning(const storage::Home& home, Wanted wanted) : home_(home), wanted_(wanted) {}

  Status run() {
    if (wanted_.flows) {
      CARREL_TRY(prune_flows());
    }
    if (wanted_.snapshots) {
      CARREL_TRY(prune_snapshots());
    }
    CARREL_TRY(prune_workspaces());
    CARREL_TRY(shrink_workspaces());
    return prune_downloads();
  }

  [[nodiscard]] const std::vector<Item>& gone() const { return gone_; }
  [[nodiscard]] const std::vector<Item>& kept() const { return kept_; }

 private:
  [[nodiscard]] bool has_journal() const {
    return ::faccessat(home_.directory(), "journal.db", F_OK, 0) == 0;
  }
  [[nodiscard]] std::uint64_t bytes_of(const std::string& workspace) const {
    auto use = storage::look_at_disk_use_of(home_, "workspaces/" + workspace);
    return use.ok() ? use->bytes : 0;
  }
  // Of the workspace that goes with an execution.
  std::uint64_t own_bytes(storage::WorkspaceRecords& records,
                          const journal::ExecutionRow& row) const {
    const auto workspace = records.find(row.workspace);
    const bool is_own = workspace.ok() && workspace.value().has_value() &&
                        workspace.value()->for_box == storage::flow_mark(row.id);
    return is_own ? bytes_of(row.workspace) : 0;
  }
  void keep(Item item, const Error& why) {
    item.why = why.to_string();
    kept_.push_back(std::move(item));
  }

  Status prune_flows();
  Status prune_snapshots();
  Status prune_workspaces();
  Status shrink_workspaces();
  Status prune_downloads();

  const storage::Home& home_;
  Wanted wanted_;
  std::vector<Item> gone_;
  std::vector<Item> kept_;
};

Status Pruning::prune_flows() {
  if (!has_journal()) {
    return {};
  }
  constexpr std::size_t kAll = 1'000'000;
  std::vector<Item> old;
  {
    CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home_));
    CARREL_ASSIGN(auto records, storage::WorkspaceRecords::open(home_));
    CARREL_ASSIGN(const std::vector<journal::ExecutionRow> rows, journal.executions("", kAll));
    for (const journal::ExecutionRow& row : rows) {
      const std::int64_t end = row.ended_ms != 0 ? row.ended_ms : row.started_ms;
      if (end < wanted_.before_ms && !journal.is_running(row.id)) {
        old.push_back({"flow", row.id, "it ended " + age(storage::wall_clock_ms() - end) + " ago",
                       own_bytes(records, row)});
      }
    }
  }
  for (Item& item : old) {
    Words removed;
    const Status done = wanted_.dry_run ? Status() : forget_flows({item.name}, removed);
    if (done.ok()) {
      gone_.push_back(std::move(item));
    } else {
      keep(std::move(item), done.error());
    }
  }
  return {};
}

Status Pruning::prune_snapshots() {
  CARREL_ASSIGN(WorkspaceStore store, WorkspaceStore::open(home_));
  CARREL_ASSIGN(const std::vector<storage::SnapshotRow> rows, store.records().snapshots(""));
  for (const storage::SnapshotRow& row : rows) {
    if (!row.name.empty() || row.created_ms >= wanted_.before_ms) {
      continue;
    }
    CARREL_ASSIGN(const bool is_held, store.records().is_held(row.id));
    if (is_held) {
      continue;  // a flow's, which is not asked for
    }
    Item item{"snapshot", row.id,
              "of " + row.workspace + ", taken " + age(storage::wall_clock_ms() - row.created_ms) +
                  " ago",
              row.bytes};
    const Status done = wanted_.dry_run ? Status() : store.records().remove_snapshot(row.id);
    if (done.ok()) {
      gone_.push_back(std::move(item));
    } else {
      keep(std::move(item), done.error());
    }
  }
  return wanted_.dry_run ? Status() : store.sweep();
}

Status Pruning::prune_workspaces() {
  std::vector<Item> left;
  {
    CARREL_ASSIGN(auto records, storage::WorkspaceRecords::open(home_));
    CARREL_ASSIGN(const std::vector<std::string> names, records.left_over());
    for (const std::string& name : names) {
      left.push_back({"workspace", name, "what it was made for has ended", bytes_of(name)});
    }
  }
  if (has_journal()) {
    CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home_));
    CARREL_ASSIGN(const std::vector<std::string> names, journal.left_workspaces({}));
    for (const std::string& name : names) {
      left.push_back({"workspace", name, "its flow is gone", bytes_of(name)});
    }
  }
  for (Item& item : left) {
    if (wanted_.dry_run || !manager::remove_workspaces({item.name}).empty()) {
      gone_.push_back(std::move(item));
    } else {
      keep(std::move(item), {Code::kConflict, 0, "it is in use", {}});
    }
  }
  return {};
}

// File systems of workspaces that were made with all of their room, or could not give it back.
Status Pruning::shrink_workspaces() {
  constexpr std::uint64_t kWorthwhile = 16ULL << 20;
  CARREL_ASSIGN(WorkspaceStore store, WorkspaceStore::open(home_));
  CARREL_ASSIGN(const std::vector<storage::WorkspaceRow> rows, store.records().list());
  for (const storage::WorkspaceRow& row : rows) {
    auto place = store.open_place(row.name);
    if (!place.ok() || !storage::has_disk(place->get())) {
      continue;
    }
    const auto spare = storage::spare_bytes(place->get());
    if (!spare.ok() || spare.value().at_least < kWorthwhile ||
        !storage::check_disk(place->get()).ok()) {
      continue;
    }
    Item item{"room", row.name, "its files do not need it", spare.value().at_least};
    const auto given = wanted_.dry_run ? Result<std::uint64_t>(item.bytes)
                                       : storage::give_back_room(home_, place->get());
    if (!given.ok()) {
      keep(std::move(item), given.error());
    } else if (given.value() != 0) {
      gone_.push_back(std::move(item));
    }
  }
  return {};
}

Status Pruning::prune_downloads() {
  CARREL_ASSIGN(const storage::DiskUse before,
                storage::look_at_disk_use_of(home_, "images/downloads"));
  if (before.files == 0) {
    return {};
  }
  if (!wanted_.dry_run) {
    CARREL_TRY(storage::prune_images(home_));
  }
  CARREL_ASSIGN(const storage::DiskUse after,
                storage::look_at_disk_use_of(home_, "images/downloads"));
  const std::uint64_t bytes =
      wanted_.dry_run ? before.bytes : before.bytes - std::min(before.bytes, after.bytes);
  if (wanted_.dry_run || after.files < before.files) {
    gone_.push_back({"download", "images/downloads", "nobody goes on with it", bytes});
  }
  return {};
}

Json json_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) {
    list.push_back(
        {{"what", item.kind}, {"name", item.name}, {"why", item.why}, {"disk_bytes", item.bytes}});
  }
  return list;
}

std::uint64_t taken_by(const storage::Home& home) {
  std::uint64_t bytes = 0;
  if (const auto uses = storage::look_at_disk_use(home); uses.ok()) {
    for (const storage::DiskUse& use : uses.value()) {
      bytes += use.bytes;
    }
  }
  return bytes;
}

}  // namespace

int prune_command(const Context& context) {
  auto wanted = wanted_by(context.arguments);
  if (!wanted.ok()) {
    return fail(context, wanted.error());
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  storage::gain_rights_over_own_files();
  const bool dry = wanted->dry_run;
  const std::uint64_t before = taken_by(home.value());
  Pruning pruning(home.value(), wanted.value());
  const Status done = pruning.run();
  std::uint64_t bytes = 0;
  for (const Item& item : pruning.gone()) {
    bytes += item.bytes;
  }
  if (!dry) {
    const std::uint64_t after = taken_by(home.value());
    bytes = before > after ? before - after : 0;
  }
  if (context.json()) {
    Json object{{"dry_run", dry},
                {"removed", json_of(pruning.gone())},
                {"kept", json_of(pruning.kept())},
                {"disk_bytes", bytes}};
    if (!done.ok()) {
      object["error"] = {{"code", code_name(done.error().code)},
                         {"message", done.error().to_string()},
                         {"hint", done.error().hint}};
    }
    print(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return done.ok() ? 0 : status_of(*context.arguments.command, done.error());
  }
  std::vector<std::vector<std::string>> lines = {{"WHAT", "NAME", "ON DISK", "WHY"}};
  for (const Item& item : pruning.gone()) {
    lines.push_back({item.kind, item.name, size_text(item.bytes), item.why});
  }
  if (lines.size() > 1) {
    print(table(lines));
  }
  for (const Item& item : pruning.kept()) {
    print_error("carrel: the " + item.kind + " '" + printable(item.name) +
                "' stays: " + printable(item.why) + "\n");
  }
  print((dry ? "about " + size_text(bytes) + " would be free; nothing was removed\n"
             : size_text(bytes) + " are free again\n"));
  return done.ok() ? 0 : fail(context, done.error());
}

}  // namespace carrel::cli
