#include "journal/journal.h"

#include <algorithm>
#include <functional>

#include "journal/owner.h"
#include "journal/store.h"
#include "journal/waits.h"
#include "storage/state.h"

namespace carrel::journal {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

Error no_such_wait(const std::string& name) {
  return Error{Code::kNotFound, 0, "there is no wait '" + name + "'", "see 'carrel flow waits'"};
}

struct WaitName {
  std::string execution;
  std::string name;
};

// Ends a wait that is open, as `change` says.
Status end_wait(Store& rows, const WaitName& of, const std::function<Status(WaitRow&)>& change) {
  return rows.in_transaction([&]() -> Status {
    CARREL_ASSIGN(std::optional<WaitRow> wait, rows.wait(of.execution, of.name));
    if (!wait.has_value()) {
      return no_such_wait(of.name);
    }
    if (wait->state != "open") {
      return Error{Code::kConflict, 0, "the wait '" + of.name + "' was " + wait->state, {}};
    }
    CARREL_TRY(change(*wait));
    wait->answered_ms = storage::wall_clock_ms();
    return rows.end_wait(*wait);
  });
}

}  // namespace

Result<Journal> Journal::open(const storage::Home& home) {
  Journal journal(home);
  CARREL_ASSIGN(journal.rows_, Store::open(home));
  CARREL_ASSIGN(journal.store_, journal.rows_->store_name());
  return journal;
}

std::vector<std::string> Journal::take_warnings() { return rows_->take_warnings(); }

Result<ExecutionRow> Journal::find_execution(const std::string& named) {
  CARREL_ASSIGN(std::optional<ExecutionRow> exact, rows_->execution(named));
  if (exact.has_value()) {
    return std::move(*exact);
  }
  std::vector<ExecutionRow> like;
  if (!named.empty()) {
    CARREL_ASSIGN(like, rows_->executions_like(named));
  }
  if (like.size() > 1) {
    return Error{Code::kInvalid, 0, "more than one execution begins with '" + named + "'",
                 "give the whole name"};
  }
  if (like.empty()) {
    return Error{Code::kNotFound, 0, "Execution " + named + " not found", "see 'carrel flow ls'"};
  }
  return std::move(like.front());
}

Result<std::vector<ExecutionRow>> Journal::executions(const std::string& flow, std::size_t most) {
  return rows_->executions(flow, most);
}

bool Journal::is_running(const std::string& execution) { return is_claimed(*home_, execution); }

Result<std::vector<TurnRow>> Journal::turns(const std::string& execution, std::int64_t run) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  CARREL_ASSIGN(std::vector<TurnRow> all, rows_->turns_of(row.id, run == 0 ? row.runs : run));
  std::vector<TurnRow> last;
  for (TurnRow& turn : all) {
    if (!last.empty() && last.back().position == turn.position) {
      last.back() = std::move(turn);
    } else {
      last.push_back(std::move(turn));
    }
  }
  return last;
}

Result<std::vector<TurnRow>> Journal::newest_turns(std::size_t most) {
  return rows_->newest_turns(most);
}

Result<TurnRow> Journal::find_turn(const std::string& execution, const std::string& selector) {
  CARREL_ASSIGN(const std::vector<TurnRow> all, turns(execution));
  std::vector<const TurnRow*> found;
  for (const TurnRow& turn : all) {
    if (is_number(selector) ? std::to_string(turn.position) == selector : turn.name == selector) {
      found.push_back(&turn);
    }
  }
  constexpr std::size_t kShortestId = 4;
  if (found.empty() && selector.size() >= kShortestId) {
    for (const TurnRow& turn : all) {
      if (turn.id.starts_with(selector)) {
        found.push_back(&turn);
      }
    }
  }
  if (found.empty()) {
    return Error{Code::kNotFound, 0,
                 "the execution '" + execution + "' has no turn '" + selector + "'",
                 "see 'carrel flow show " + execution + "'"};
  }
  if (found.size() > 1) {
    return Error{Code::kInvalid, 0, "more than one turn is called '" + selector + "'",
                 "give its number"};
  }
  return *found.front();
}

Result<std::vector<TurnRow>> Journal::attempts(const std::string& execution, std::int64_t run,
                                               std::int64_t position) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  CARREL_ASSIGN(std::vector<TurnRow> all, rows_->turns_of(row.id, run == 0 ? row.runs : run));
  std::erase_if(all, [&](const TurnRow& turn) { return turn.position != position; });
  return all;
}

Result<std::vector<CallRow>> Journal::calls(const TurnRow& turn) {
  return rows_->calls(turn.source.empty() ? turn.id : turn.source);
}

Result<Artifact> Journal::load(const std::string& execution, const std::string& name) {
  const std::size_t slash = name.find('/');
  const std::string of = slash == std::string::npos ? "" : name.substr(0, slash);
  const std::string wanted = slash == std::string::npos ? name : name.substr(slash + 1);
  CARREL_ASSIGN(const std::vector<TurnRow> all, turns(execution));
  std::vector<Artifact> found;
  for (const TurnRow& turn : all) {
    if (!of.empty() && turn.name != of) {
      continue;
    }
    CARREL_ASSIGN(std::optional<Artifact> artifact, rows_->artifact(turn.id, wanted));
    if (artifact.has_value()) {
      artifact->turn = turn.name;
      found.push_back(std::move(*artifact));
    }
  }
  if (found.empty()) {
    return Error{Code::kNotFound,
                 0,
                 "the execution '" + execution + "' has saved nothing as '" + name + "'",
                 {}};
  }
  if (found.size() > 1) {
    return Error{Code::kInvalid, 0,
                 "several turns of the execution '" + execution + "' have saved '" + name + "'",
                 "say which: " + found.front().turn + "/" + name + ", for instance"};
  }
  return std::move(found.front());
}

Result<std::vector<WaitRow>> Journal::open_waits() { return rows_->open_waits(); }

Result<WaitRow> Journal::find_wait(const std::string& execution, const std::string& name) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  CARREL_ASSIGN(std::optional<WaitRow> wait, rows_->wait(row.id, name));
  return wait.has_value() ? Result<WaitRow>(std::move(*wait)) : no_such_wait(name);
}

Status Journal::answer(const std::string& execution, const std::string& name,
                       const std::string& json) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  return end_wait(*rows_, {row.id, name}, [&](WaitRow& wait) {
    wait.state = "answered";
    wait.answer = json;
    return check_answer(wait.schema, json);
  });
}

Status Journal::abort_wait(const std::string& execution, const std::string& name) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  return end_wait(*rows_, {row.id, name}, [](WaitRow& wait) {
    wait.state = "aborted";
    return Status{};
  });
}

Status Journal::remove(const std::string& execution) {
  CARREL_ASSIGN(const ExecutionRow row, find_execution(execution));
  CARREL_ASSIGN(UniqueFd owner, claim(*home_, row.id));
  Status removed = rows_->in_transaction([&]() -> Status {
    CARREL_ASSIGN(const std::vector<std::string> snapshots, rows_->snapshots_of(row.id));
    CARREL_TRY(rows_->remove_execution(row.id));
    for (const std::string& snapshot : snapshots) {
      CARREL_ASSIGN(const bool needed, rows_->refers_to(snapshot));
      if (!needed) {
        CARREL_TRY(
            rows_->add_intent({"let go " + snapshot, row.id, Intent::Kind::kLetGo, snapshot}));
      }
    }
    return {};
  });
  if (removed.ok()) {
    removed = settle_own(row.id);
  }
  release(*home_, row.id, std::move(owner));
  return removed;
}

Result<std::vector<std::string>> Journal::left_workspaces(const std::vector<std::string>& gone) {
  // An execution makes its workspace before it is in the record.
  constexpr std::int64_t kBeginningMs = 600'000;
  CARREL_ASSIGN(storage::WorkspaceRecords * records, rows_->snapshots(*home_));
  CARREL_ASSIGN(const auto all, records->of_flows());
  std::vector<std::string> names;
  for (const storage::WorkspaceRecords::OfFlow& one : all) {
    CARREL_ASSIGN(const std::optional<ExecutionRow> execution, rows_->execution(one.execution));
    const bool is_known = std::find(gone.begin(), gone.end(), one.execution) != gone.end();
    if (!execution.has_value() &&
        (is_known || storage::wall_clock_ms() - one.used_ms > kBeginningMs)) {
      names.push_back(one.name);
    }
  }
  return names;
}

Status Journal::settle_own(const std::string& execution) {
  CARREL_ASSIGN(const std::vector<Intent> intents, rows_->intents());
  for (const Intent& intent : intents) {
    if (intent.execution == execution) {
      CARREL_TRY(settle_intent(intent));
    }
  }
  return {};
}

Status Journal::settle() {
  CARREL_ASSIGN(const std::vector<Intent> intents, rows_->intents());
  for (const Intent& intent : intents) {
    UniqueFd owner = try_claim(*home_, intent.execution);
    if (owner.valid()) {
      const Status settled = settle_intent(intent);
      release(*home_, intent.execution, std::move(owner));
      CARREL_TRY(settled);
    }
  }
  return {};
}

// Nobody is at its execution. A snapshot that was taken for a turn that is not in the record goes;
// one that its workspace stands at stays until it does not, because the next one builds on it, or
// until the execution is removed.
Status Journal::settle_intent(const Intent& intent) {
  CARREL_ASSIGN(storage::WorkspaceRecords * snapshots, rows_->snapshots(*home_));
  std::string snapshot = intent.snapshot;
  if (intent.kind == Intent::Kind::kKeep) {
    CARREL_ASSIGN(const auto held, snapshots->held_by(intent.id));
    snapshot = held.has_value() ? held->id : "";
  }
  if (!snapshot.empty()) {
    CARREL_ASSIGN(const bool needed, rows_->refers_to(snapshot));
    CARREL_ASSIGN(const bool head, snapshots->is_head(snapshot));
    CARREL_ASSIGN(const std::optional<ExecutionRow> execution, rows_->execution(intent.execution));
    if (!needed && head && execution.has_value()) {
      return {};
    }
    if (!needed) {
      CARREL_TRY(snapshots->let_go(snapshot));
    }
  }
  return rows_->clear_intent(intent.id);
}

}  // namespace carrel::journal
