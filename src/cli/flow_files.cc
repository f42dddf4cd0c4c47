#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/saved_plan.h"
#include "backends/native/remains.h"
#include "cli/agent_order.h"
#include "cli/diff.h"
#include "cli/flow.h"
#include "cli/fork.h"
#include "cli/output.h"
#include "journal/files.h"
#include "journal/replay_plan.h"
#include "journal/run.h"
#include "manager/owned.h"
#include "manager/workspace_target.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/rights.h"
#include "storage/workspaces/snapshot.h"

namespace carrel::cli {
namespace {

using Json = nlohmann::ordered_json;
using journal::ExecutionRow;
using journal::TurnRow;

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct Found {
  ExecutionRow execution;
  TurnRow turn;
};

// A turn that has files. The journal is closed again when this returns.
Result<Found> find_turn(const std::string& execution, const std::string& selector) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  Found found;
  CARREL_ASSIGN(found.execution, journal.find_execution(execution));
  CARREL_ASSIGN(found.turn, journal.find_turn(found.execution.id, selector));
  if (found.turn.snapshot.empty()) {
    return Error{
        Code::kConflict, 0,
        "turn '" + found.turn.name + "' of the execution '" + found.execution.id +
            "' has left no files",
        found.execution.workspace.empty() ? "its flow has no workspace" : "it was not finished"};
  }
  return found;
}

Result<storage::Tree> tree_of(manager::WorkspaceTarget& at, const std::string& snapshot) {
  CARREL_ASSIGN(const storage::SnapshotRow row, at.store->snapshot(snapshot));
  return at.store->read_tree(row.layers);
}

// Makes the workspace what the turn left, and returns the snapshot of what it was before.
Result<std::string> restore_turn(const Found& found) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  {
    CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
    if (journal.is_running(found.execution.id)) {
      return Error{Code::kConflict, 0, "the execution '" + found.execution.id + "' is running",
                   "wait for its end"};
    }
  }
  CARREL_ASSIGN(const std::unique_ptr<manager::WorkspaceTarget> at,
                manager::open_workspace_target(found.execution.workspace));
  if (!at->boxes.empty()) {
    return Error{Code::kConflict, 0, "a sandbox runs in the workspace '" + at->row.name + "'",
                 "end it first: carrel rm " + at->boxes.front().id};
  }
  CARREL_ASSIGN(const UniqueFd alone, manager::keep_runs_away(*at));
  CARREL_ASSIGN(const storage::SnapshotRow wanted, at->store->snapshot(found.turn.snapshot));
  CARREL_ASSIGN(const storage::SnapshotRow kept,
                storage::take_snapshot(*at->store, at->row,
                                       {.unchanged = storage::Unchanged::kLastOne}, *at->writers));
  CARREL_ASSIGN(at->row, at->store->find(at->row.name));
  CARREL_TRY(storage::restore_snapshot(*at->store, at->row, wanted, *at->writers));
  return kept.id;
}

}  // namespace

int diff_turn(const Context& context, const Words& words) {
  auto first = find_turn(words[0], words[1]);
  auto last = words.size() > 2 ? find_turn(words[0], words[2]) : first;
  if (!first.ok() || !last.ok()) {
    return fail(context, first.ok() ? last.error() : first.error());
  }
  auto target = manager::open_workspace_target(first->execution.workspace);
  if (!target.ok()) {
    return fail(context, target.error());
  }
  const std::string from = words.size() > 2 ? first->turn.snapshot : first->turn.start_snapshot;
  auto before = tree_of(**target, from);
  auto after = tree_of(**target, last->turn.snapshot);
  if (!before.ok() || !after.ok()) {
    return fail(context, before.ok() ? after.error() : before.error());
  }
  return show_diff(context, **target, before.value(), after.value());
}

int fork_turn(const Context& context, const Words& words) {
  auto found = find_turn(words[0], words[1]);
  auto home = storage::Home::open();
  if (!found.ok() || !home.ok()) {
    return fail(context, found.ok() ? home.error() : found.error());
  }
  auto id = make_fork(context, home.value(), found->execution.workspace,
                      {found->turn.snapshot, ForkStart::Said::kByARecord});
  if (!id.ok()) {
    return fail(context, id.error());
  }
  print(context.json() ? to_text(Json{{"id", id.value()}, {"snapshot", found->turn.snapshot}})
                       : id.value() + "\n");
  return 0;
}

int roll_back(const Context& context, const Words& words) {
  auto found = find_turn(words[0], words[1]);
  auto kept = found.ok() ? restore_turn(found.value()) : Result<std::string>(found.error());
  if (!kept.ok()) {
    return fail(context, kept.error());
  }
  if (!context.json()) {
    print_error("carrel: what the workspace held is kept as the snapshot " + kept.value() + "\n");
  }
  print(context.json() ? to_text(Json{{"workspace", found->execution.workspace},
                                      {"snapshot", found->turn.snapshot},
                                      {"kept", kept.value()}})
                       : found->turn.snapshot + "\n");
  return 0;
}

namespace {

// TURN.prompt=TEXT or TURN.output=TEXT, as check_replay_set() has seen it.
journal::Replay::Override override_from(std::string_view text) {
  const std::size_t sign = text.find('=');
  const std::size_t dot = text.substr(0, sign).rfind('.');
  const std::string_view name = text.substr(dot + 1, sign - dot - 1);
  return {std::string(text.substr(0, dot)), name == "output" ? "" : std::string(name),
          std::string(text.substr(sign + 1))};
}

// What was asked for, with selectors that name something.
Result<journal::Replay> replay_of(const Context& context, const std::string& named) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  CARREL_ASSIGN(const ExecutionRow source, journal.find_execution(named));
  CARREL_ASSIGN(const std::vector<TurnRow> turns, journal.turns(source.id));
  if (turns.empty()) {
    return Error{Code::kConflict, 0, "the execution '" + source.id + "' has no turns", {}};
  }
  journal::Replay replay{source.id};
  replay.from = context.arguments.value(OptionId::kReplayFrom).value_or("");
  if (context.arguments.has(OptionId::kLive)) {
    replay.mode = journal::Replay::Mode::kLive;
  }
  for (const std::string_view text : context.arguments.values(OptionId::kReplaySet)) {
    replay.overrides.push_back(override_from(text));
  }
  CARREL_TRY(journal::ReplayPlan::make(journal, replay));
  return replay;
}

// Whether something else than what is recorded is wanted, so that a turn may have to be run.
bool may_run(const journal::Replay& replay) {
  return replay.mode == journal::Replay::Mode::kLive ||
         std::any_of(replay.overrides.begin(), replay.overrides.end(),
                     [](const journal::Replay::Override& change) { return !change.name.empty(); });
}

// Repeats an execution from its record, in a workspace of its own. Nothing is run.
Result<Json> repeat(const Context& context, journal::Replay replay) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  CARREL_ASSIGN(const ExecutionRow source, journal.find_execution(replay.source));
  journal::RunOptions options;
  options.replay = std::move(replay);
  options.execution = std::string(context.arguments.value(OptionId::kName).value_or(""));
  options.tell = [&](const journal::RunEvent& event) {
    print_error("carrel: " + printable(journal::event_line(event)) + "\n");
  };
  std::string workspace;
  std::unique_ptr<journal::Files> files = std::make_unique<journal::NoFiles>();
  if (!source.workspace.empty()) {
    workspace = std::string(context.arguments.value(OptionId::kNewWorkspace)
                                .value_or("replay-" + storage::random_hex(8)));
    options.execution =
        options.execution.empty() ? storage::random_hex(8) : std::move(options.execution);
    CARREL_TRY(journal::make_workspace_from(home, source.first_snapshot, workspace,
                                            context.arguments.has(OptionId::kNewWorkspace)
                                                ? ""
                                                : storage::flow_mark(options.execution)));
    files = std::make_unique<journal::WorkspaceFiles>(workspace);
  }
  CARREL_ASSIGN(const std::unique_ptr<journal::Run> run,
                journal::Run::begin(journal, *files, std::move(options)));
  CARREL_TRY(run->repeat());
  CARREL_TRY(run->finish());
  return Json{{"execution", run->execution()}, {"replay_of", source.id}, {"workspace", workspace}};
}

// Those that were removed, up to the first that could not be.
Status remove_each(const storage::Home& home, journal::Journal& journal, const Words& words,
                   Words& removed) {
  CARREL_TRY(journal.settle());
  for (const std::string& named : words) {
    CARREL_ASSIGN(const ExecutionRow row, journal.find_execution(named));
    CARREL_TRY(journal.remove(row.id));
    CARREL_TRY(agent::forget_plan(home, row.id));
    removed.push_back(row.id);
  }
  return {};
}

// Takes away what no snapshot needs any more.
Status sweep(const storage::Home& home) {
  storage::gain_rights_over_own_files();
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  return store.sweep();
}

}  // namespace

namespace {

int run_replay(const Context& context, journal::Replay replay) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  auto order = read_replay_order(context, home.value(), std::move(replay));
  return order.ok() ? run_agent(context, home.value(), std::move(order.value()))
                    : fail(context, order.error());
}

}  // namespace

int replay_flow(const Context& context, const std::string& named) {
  auto replay = replay_of(context, named);
  if (!replay.ok()) {
    return fail(context, replay.error());
  }
  if (may_run(replay.value())) {
    return run_replay(context, std::move(replay.value()));
  }
  auto done = repeat(context, std::move(replay.value()));
  if (!done.ok()) {
    return fail(context, done.error());
  }
  print(context.json() ? to_text(done.value()) : done->value("execution", "") + "\n");
  return 0;
}

Status forget_flows(const Words& words, Words& removed) {
  CARREL_ASSIGN(const storage::Home home, storage::Home::open());
  Status failed;
  Words workspaces;
  {
    CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
    failed = remove_each(home, journal, words, removed);
    CARREL_ASSIGN(workspaces, journal.left_workspaces(removed));
  }
  manager::remove_workspaces(workspaces);
  Status swept = sweep(home);
  return failed.ok() ? swept : failed;
}

int remove_flows(const Context& context, const Words& words) {
  Words removed;
  const Status failed = forget_flows(words, removed);
  if (context.json()) {
    print(to_text(Json{{"removed", removed}}));
  } else {
    for (const std::string& id : removed) {
      print(id + "\n");
    }
  }
  return failed.ok() ? 0 : fail(context, failed.error());
}

}  // namespace carrel::cli
