#include "storage/workspaces/snapshot.h"

#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/output.h"
#include "cli/snapshot_text.h"
#include "manager/workspace_target.h"
#include "policy/size.h"
#include "storage/workspaces/restore.h"

namespace carrel::cli {

using Json = nlohmann::ordered_json;

std::string snapshot_json(const storage::SnapshotRow& row) {
  return Json{{"id", row.id},
              {"workspace", row.workspace},
              {"name", row.name},
              {"created_ms", row.created_ms},
              {"frozen_us", row.frozen_us},
              {"changed", row.changed},
              {"copied_bytes", row.bytes},
              {"layers", row.layers.size()}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::uint64_t most_bytes(const Context& context) {
  const auto given = context.arguments.value(OptionId::kMostBytes);
  const auto bytes =
      policy::parse_count({"--most", given.value_or("")}, {.least = 0, .most = INT64_MAX});
  return given.has_value() && bytes.ok() ? bytes.value() : UINT64_MAX;
}

int snapshot_command(const Context& context) {
  auto target = manager::open_workspace_target(std::string(context.arguments.operands.front()));
  if (!target.ok()) {
    return fail(context, target.error());
  }
  manager::WorkspaceTarget& at = **target;
  auto alone = manager::keep_runs_away(at);
  if (!alone.ok()) {
    return fail(context, alone.error());
  }
  auto taken = storage::take_snapshot(
      *at.store, at.row,
      {.name = std::string(context.arguments.value(OptionId::kSnapshotName).value_or("")),
       .most = most_bytes(context)},
      *at.writers);
  if (!taken.ok()) {
    return fail(context, taken.error());
  }
  print((context.json() ? snapshot_json(taken.value()) : taken->id) + "\n");
  return 0;
}

int restore_command(const Context& context) {
  auto target = manager::open_workspace_target(std::string(context.arguments.operands[0]));
  if (!target.ok()) {
    return fail(context, target.error());
  }
  manager::WorkspaceTarget& at = **target;
  auto alone = manager::keep_runs_away(at);
  if (!alone.ok()) {
    return fail(context, alone.error());
  }
  auto snapshot = manager::find_snapshot(at, std::string(context.arguments.operands[1]));
  if (!snapshot.ok()) {
    return fail(context, snapshot.error());
  }
  if (at.row.form == storage::TreeForm::kUpper && !at.boxes.empty()) {
    return fail(context, Error{Code::kConflict, 0,
                               "the workspace '" + at.row.name +
                                   "' is a fork, and cannot be restored while a sandbox runs in it",
                               "end it first: carrel rm " + at.boxes.front().id});
  }
  Status done = storage::restore_snapshot(*at.store, at.row, snapshot.value(), *at.writers);
  if (!done.ok()) {
    return fail(context, done.error());
  }
  print((context.json() ? snapshot_json(snapshot.value()) : snapshot->id) + "\n");
  return 0;
}

}  // namespace carrel::cli
