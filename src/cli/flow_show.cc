#include <map>
#include <nlohmann/json.hpp>

#include "cli/agent_output.h"
#include "cli/diff.h"
#include "cli/flow.h"
#include "cli/output.h"
#include "cli/table.h"
#include "journal/explain.h"
#include "journal/redact.h"
#include "journal/store.h"
#include "storage/state.h"
#include "storage/workspaces/compare.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::cli {
namespace {

using Json = nlohmann::ordered_json;
using journal::CallRow;
using journal::ExecutionRow;
using journal::TurnRow;
using journal::TurnState;

constexpr std::size_t kMostShown = 20;
constexpr std::size_t kMostFiles = 1000;

std::string shown_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::size_t limit_of(const Context& context) {
  const auto given = context.arguments.value(OptionId::kMost);
  return given.has_value() ? std::stoul(std::string(*given)) : kMostShown;
}

std::string ago(std::int64_t ms) { return age(storage::wall_clock_ms() - ms) + " ago"; }

std::string took(std::int64_t from, std::int64_t to) {
  const std::int64_t ms = to > from ? to - from : 0;
  return ms < 10'000 ? std::to_string(ms) + " ms" : age(ms);
}

// What is written as running may have been killed.
std::string state_of(journal::Journal& journal, const ExecutionRow& row) {
  return row.state == "running" && !journal.is_running(row.id) ? "interrupted" : row.state;
}

std::string state_of(journal::Journal& journal, const TurnRow& turn) {
  return turn.state == TurnState::kRunning && !journal.is_running(turn.execution)
             ? "interrupted"
             : journal::state_name(turn.state);
}

// One line for a terminal.
std::string preview(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return printable(journal::cap(line)) + (line.size() < text.size() ? " …" : "");
}

Json turn_json(journal::Journal& journal, const TurnRow& turn) {
  return Json{{"id", turn.id},
              {"execution", turn.execution},
              {"run", turn.run},
              {"position", turn.position},
              {"attempt", turn.attempt},
              {"name", turn.name},
              {"state", state_of(journal, turn)},
              {"cached_from", turn.source},
              {"key", turn.key},
              {"text", turn.text},
              {"error", turn.error},
              {"start_snapshot", turn.start_snapshot},
              {"snapshot", turn.snapshot},
              {"changed", turn.changed},
              {"side_effects", turn.has_effects},
              {"started_ms", turn.started_ms},
              {"ended_ms", turn.ended_ms},
              {"logs", Json::parse(turn.logs, nullptr, false)}};
}

Json call_json(const CallRow& call) {
  return Json{{"kind", journal::kind_name(call.kind)},
              {"name", call.name},
              {"arguments", call.arguments},
              {"result", call.result},
              {"exit_code", call.exit_code.has_value() ? Json(*call.exit_code) : Json()},
              {"succeeded", call.succeeded},
              {"cached", call.cached},
              {"started_ms", call.started_ms},
              {"ended_ms", call.ended_ms}};
}

Json execution_json(journal::Journal& journal, const ExecutionRow& row) {
  return Json{{"execution", row.id},        {"flow", row.flow},
              {"workspace", row.workspace}, {"state", state_of(journal, row)},
              {"error", row.error},         {"runs", row.runs},
              {"replay_of", row.source},    {"started_ms", row.started_ms},
              {"ended_ms", row.ended_ms}};
}

// The trees of snapshots, each read once.
class Trees {
 public:
  explicit Trees(storage::WorkspaceStore& store) : store_(store) {}

  // What a turn made, wrote or removed; nothing where its files cannot be read any more.
  std::vector<storage::Difference> changes(const TurnRow& turn) {
    if (turn.snapshot.empty() || turn.snapshot == turn.start_snapshot) {
      return {};
    }
    return storage::compare_trees(tree(turn.start_snapshot), tree(turn.snapshot));
  }

 private:
  const storage::Tree& tree(const std::string& snapshot) {
    const auto [at, added] = trees_.try_emplace(snapshot);
    auto row = added ? store_.records().snapshot(snapshot)
                     : Result<std::optional<storage::SnapshotRow>>(std::nullopt);
    if (row.ok() && row.value().has_value()) {
      if (auto read = store_.read_tree(row.value()->layers); read.ok()) {
        at->second = std::move(read.value());
      }
    }
    return at->second;
  }
  storage::WorkspaceStore& store_;
  std::map<std::string, storage::Tree> trees_;
};

// What was called, on one line. A flow need not be an agent's.
std::string title_of(const CallRow& call) {
  if (call.kind == journal::CallKind::kModel) {
    if (const auto reply = agent::reply_from_json(call.result); reply.ok()) {
      return answer_title(call.name, reply.value());
    }
  }
  return call_title({{}, call.name, call.arguments});
}

void print_turn(journal::Journal& journal, const TurnRow& turn, const std::vector<CallRow>& calls,
                const std::vector<storage::Difference>& changes) {
  print(std::to_string(turn.position) + ". " + printable(turn.name) + "  " +
        state_of(journal, turn) +
        (turn.attempt > 1 ? " at attempt " + std::to_string(turn.attempt) : "") + "  " +
        took(turn.started_ms, turn.ended_ms) + "\n");
  for (const CallRow& call : calls) {
    const std::string end = call.exit_code.has_value()
                                ? "exit " + std::to_string(*call.exit_code)
                                : std::string(call.succeeded ? "ok" : "failed");
    print("   " + title_of(call) + "  " + end + "  " + took(call.started_ms, call.ended_ms) +
          (call.cached ? "  (cached)" : "") + "\n");
  }
  for (std::size_t i = 0; i < changes.size() && i < kMostFiles; ++i) {
    print(std::string("   ") + "AMDR"[static_cast<int>(changes[i].change)] + "  " +
          printable(changes[i].path) + "\n");
  }
  const std::string& said = turn.error.empty() ? turn.text : turn.error;
  if (!said.empty()) {
    print("   > " + preview(said) + "\n");
  }
}

}  // namespace

int list_flows(const Context& context, journal::Journal& journal) {
  const std::string flow(context.arguments.value(OptionId::kFlowName).value_or(""));
  auto rows = journal.executions(flow, limit_of(context));
  if (!rows.ok()) {
    return fail(context, rows.error());
  }
  std::vector<std::vector<std::string>> lines = {
      {"EXECUTION", "FLOW", "STATE", "RUNS", "STARTED", "WORKSPACE", ""}};
  Json list = Json::array();
  for (const ExecutionRow& row : rows.value()) {
    lines.push_back({row.id, row.flow, state_of(journal, row), std::to_string(row.runs),
                     ago(row.started_ms), row.workspace.empty() ? "-" : row.workspace,
                     row.source.empty() ? "" : "replay of " + row.source});
    list.push_back(execution_json(journal, row));
  }
  print(context.json() ? shown_text(Json{{"executions", list}}) : table(lines));
  return 0;
}

int list_newest_turns(const Context& context, journal::Journal& journal) {
  auto turns = journal.newest_turns(limit_of(context));
  if (!turns.ok()) {
    return fail(context, turns.error());
  }
  std::vector<std::vector<std::string>> lines = {
      {"EXECUTION", "TURN", "NAME", "STATE", "STARTED", "TOOK", "FILES"}};
  Json list = Json::array();
  for (const TurnRow& turn : turns.value()) {
    lines.push_back({turn.execution, std::to_string(turn.position), turn.name,
                     state_of(journal, turn), ago(turn.started_ms),
                     took(turn.started_ms, turn.ended_ms), std::to_string(turn.changed)});
    list.push_back(turn_json(journal, turn));
  }
  print(context.json() ? shown_text(Json{{"turns", list}}) : table(lines));
  return 0;
}

int show_flow(const Context& context, journal::Journal& journal, const std::string& named) {
  const auto given = context.arguments.value(OptionId::kRunNumber);
  auto row = journal.find_execution(named);
  auto turns = row.ok() ? journal.turns(row->id, given ? std::stol(std::string(*given)) : 0)
                        : Result<std::vector<TurnRow>>(row.error());
  if (!turns.ok()) {
    return fail(context, turns.error());
  }
  auto store = storage::WorkspaceStore::open(journal.home());
  if (!store.ok()) {
    return fail(context, store.error());
  }
  Trees trees(store.value());
  Json list = Json::array();
  if (!context.json()) {
    print("execution " + row->id + "  flow " + row->flow + "  " + state_of(journal, row.value()) +
          (row->workspace.empty() ? "" : "  workspace " + row->workspace) +
          (row->runs > 1 ? "  run " + (given ? std::string(*given) : std::to_string(row->runs)) +
                               " of " + std::to_string(row->runs)
                         : "") +
          (row->source.empty() ? "" : "  replay of " + row->source) + "\n");
  }
  for (const TurnRow& turn : turns.value()) {
    auto calls = journal.calls(turn);
    if (!calls.ok()) {
      return fail(context, calls.error());
    }
    const std::vector<storage::Difference> changes = trees.changes(turn);
    if (!context.json()) {
      print_turn(journal, turn, calls.value(), changes);
      continue;
    }
    Json one = turn_json(journal, turn);
    one["calls"] = Json::array();
    for (const CallRow& call : calls.value()) {
      one["calls"].push_back(call_json(call));
    }
    one["files"] = Json::array();
    for (std::size_t i = 0; i < changes.size() && i < kMostFiles; ++i) {
      one["files"].push_back(
          {{"change", change_name(changes[i].change)}, {"path", changes[i].path}});
    }
    list.push_back(std::move(one));
  }
  if (context.json()) {
    Json object = execution_json(journal, row.value());
    object["logs"] = Json::parse(row->logs, nullptr, false);
    object["turns"] = std::move(list);
    print(shown_text(object));
  }
  return 0;
}

int explain_turn(const Context& context, journal::Journal& journal, const Words& words) {
  auto turn = journal.find_turn(words[0], words[1]);
  auto why = turn.ok() ? journal::explain(journal, turn.value())
                       : Result<journal::Explanation>(turn.error());
  if (!why.ok()) {
    return fail(context, why.error());
  }
  const bool cached = why->turn.state == TurnState::kCached;
  std::string said = "turn '" + why->turn.name + "' was ";
  if (cached) {
    said += "taken from the record";
  } else if (!why->nearest.has_value()) {
    said += "run: there was no finished turn of that name before it";
  } else if (why->changes.empty()) {
    said += "run although one with the same key was recorded (DISABLE_CACHE, or a live replay)";
  } else {
    said += "run: it is not what it was in the execution '" + why->nearest->execution + "'";
  }
  Json changes = Json::array();
  std::string text = printable(said) + "\n";
  for (const journal::PartChange& change : why->changes) {
    constexpr std::array<const char*, 3> kWords = {"changed", "added", "removed"};
    const char* word = kWords.at(static_cast<std::size_t>(change.kind));
    changes.push_back(
        {{"part", change.name}, {"change", word}, {"before", change.before}, {"now", change.now}});
    text += "   " + printable(change.name) + "  " + word + "\n";
    text += change.before.empty() ? "" : "     - " + preview(change.before) + "\n";
    text += change.now.empty() ? "" : "     + " + preview(change.now) + "\n";
  }
  if (context.json()) {
    text = shown_text(
        Json{{"turn", turn_json(journal, why->turn)},
             {"cached", cached},
             {"compared_with", why->nearest.has_value() ? Json(why->nearest->id) : Json()},
             {"changes", changes}});
  }
  print(text);
  return 0;
}

}  // namespace carrel::cli
