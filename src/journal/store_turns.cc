#include <array>

#include "base/sha256.h"
#include "journal/store.h"

namespace carrel::journal {
namespace {

using storage::Database;

#define CARREL_TURN_COLUMNS                                                                    \
  "id, execution, run, position, attempt, name, state, key, parts, text, data, error, "        \
  "start_snapshot, start_identity, snapshot, identity, changed, source, effects, started_ms, " \
  "ended_ms, logs, sum"

// Of what somebody who takes the turn from the record relies on.
std::string sum_of(const TurnRow& row, const std::string& parts) {
  Sha256 sum;
  for (const std::string& text :
       {row.id, row.execution, row.name, std::string(state_name(row.state)), row.key, parts,
        row.text, row.data, row.start_identity, row.snapshot, row.identity,
        std::to_string(row.has_effects ? 1 : 0)}) {
    sum.update(std::to_string(text.size()) + ":");
    sum.update(text);
  }
  return sum.finish();
}

TurnState state_from(const std::string& name) {
  for (const TurnState state : {TurnState::kFinished, TurnState::kCached, TurnState::kFailed}) {
    if (name == state_name(state)) {
      return state;
    }
  }
  return TurnState::kRunning;
}

}  // namespace

const char* state_name(TurnState state) {
  constexpr std::array<const char*, 4> kNames = {"running", "finished", "cached", "failed"};
  return kNames.at(static_cast<std::size_t>(state));
}

Status Store::add_turn(const TurnRow& row, const std::string& flow) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT INTO turns (flow, " CARREL_TURN_COLUMNS
                                  ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                  "?, ?, ?, ?, ?, ?, ?)"));
  const std::string parts = parts_to_json(row.parts);
  statement.bind(flow).bind(row.id).bind(row.execution).bind(row.run).bind(row.position);
  statement.bind(row.attempt).bind(row.name).bind(state_name(row.state)).bind(row.key);
  statement.bind(parts).bind(row.text).bind(row.data).bind(row.error).bind(row.start_snapshot);
  statement.bind(row.start_identity).bind(row.snapshot).bind(row.identity);
  statement.bind(static_cast<std::int64_t>(row.changed)).bind(row.source);
  statement.bind(std::int64_t{row.has_effects ? 1 : 0}).bind(row.started_ms).bind(row.ended_ms);
  CARREL_TRY(statement.bind(row.logs).bind(sum_of(row, parts)).step());
  return {};
}

Status Store::end_turn(const TurnRow& row) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE turns SET state = ?, text = ?, data = ?, error = ?, "
                                  "snapshot = ?, identity = ?, changed = ?, effects = ?, "
                                  "ended_ms = ?, logs = ?, sum = ? WHERE id = ?"));
  statement.bind(state_name(row.state)).bind(row.text).bind(row.data).bind(row.error);
  statement.bind(row.snapshot).bind(row.identity).bind(static_cast<std::int64_t>(row.changed));
  statement.bind(std::int64_t{row.has_effects ? 1 : 0}).bind(row.ended_ms).bind(row.logs);
  CARREL_TRY(statement.bind(sum_of(row, parts_to_json(row.parts))).bind(row.id).step());
  return {};
}

Result<std::vector<TurnRow>> Store::list_turns(
    const char* sql, const std::function<void(Database::Statement&)>& bind) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  bind(statement);
  std::vector<TurnRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return rows;
    }
    TurnRow row;
    row.id = statement.text(0);
    row.execution = statement.text(1);
    row.run = statement.number(2);
    row.position = statement.number(3);
    row.attempt = statement.number(4);
    row.name = statement.text(5);
    row.state = state_from(statement.text(6));
    row.key = statement.text(7);
    const std::string parts_text = statement.text(8);
    row.text = statement.text(9);
    row.data = statement.text(10);
    row.error = statement.text(11);
    row.start_snapshot = statement.text(12);
    row.start_identity = statement.text(13);
    row.snapshot = statement.text(14);
    row.identity = statement.text(15);
    row.changed = static_cast<std::uint64_t>(statement.number(16));
    row.source = statement.text(17);
    row.has_effects = statement.number(18) != 0;
    row.started_ms = statement.number(19);
    row.ended_ms = statement.number(20);
    row.logs = statement.text(21);
    auto parts = parts_from_json(parts_text);
    // CRITICAL: what was not written so is not there.
    if (!parts.ok() || statement.text(22) != sum_of(row, parts_text)) {
      warn("the record of turn '" + row.name + "' of the execution '" + row.execution +
           "' is damaged, and counts as missing");
      continue;
    }
    row.parts = std::move(parts.value());
    rows.push_back(std::move(row));
  }
}

Result<std::optional<TurnRow>> Store::turn(const std::string& id) {
  CARREL_ASSIGN(std::vector<TurnRow> rows,
                list_turns("SELECT " CARREL_TURN_COLUMNS " FROM turns WHERE id = ?",
                           [&](Database::Statement& to) { to.bind(id); }));
  return rows.empty() ? std::nullopt : std::optional<TurnRow>(std::move(rows.front()));
}

Result<std::vector<TurnRow>> Store::turns_of(const std::string& execution, std::int64_t run) {
  return list_turns("SELECT " CARREL_TURN_COLUMNS
                    " FROM turns WHERE execution = ? AND run = ? ORDER BY position, attempt",
                    [&](Database::Statement& to) { to.bind(execution).bind(run); });
}

Result<std::vector<TurnRow>> Store::newest_turns(std::size_t most) {
  return list_turns("SELECT " CARREL_TURN_COLUMNS " FROM turns ORDER BY number DESC LIMIT ?",
                    [&](Database::Statement& to) { to.bind(static_cast<std::int64_t>(most)); });
}

Result<std::vector<TurnRow>> Store::turns_with_key(const std::string& key) {
  return list_turns("SELECT " CARREL_TURN_COLUMNS
                    " FROM turns WHERE key = ? AND state = 'finished' ORDER BY number DESC "
                    "LIMIT 16",
                    [&](Database::Statement& to) { to.bind(key); });
}

Result<std::vector<TurnRow>> Store::turns_with_key(const std::string& key,
                                                   const std::string& execution) {
  return list_turns("SELECT " CARREL_TURN_COLUMNS
                    " FROM turns WHERE key = ? AND execution = ? AND state IN ('finished', "
                    "'cached') ORDER BY number DESC LIMIT 16",
                    [&](Database::Statement& to) { to.bind(key).bind(execution); });
}

Result<std::optional<TurnRow>> Store::stopped_turn(const std::string& key,
                                                   const std::string& execution) {
  CARREL_ASSIGN(std::vector<TurnRow> rows,
                list_turns("SELECT " CARREL_TURN_COLUMNS
                           " FROM turns WHERE key = ? AND execution = ? AND state = 'failed' AND "
                           "data <> '' ORDER BY number DESC LIMIT 1",
                           [&](Database::Statement& to) { to.bind(key).bind(execution); }));
  return rows.empty() ? std::nullopt : std::optional<TurnRow>(std::move(rows.front()));
}

Result<std::optional<TurnRow>> Store::turn_before(const std::string& flow, const TurnRow& before) {
  CARREL_ASSIGN(std::vector<TurnRow> rows,
                list_turns("SELECT " CARREL_TURN_COLUMNS
                           " FROM turns WHERE flow = ? AND name = ? AND state = 'finished' AND "
                           "number < (SELECT number FROM turns WHERE id = ?) ORDER BY number "
                           "DESC LIMIT 1",
                           [&](Database::Statement& to) {
                             to.bind(flow).bind(before.name).bind(before.id);
                           }));
  return rows.empty() ? std::nullopt : std::optional<TurnRow>(std::move(rows.front()));
}

Result<bool> Store::refers_to(const std::string& snapshot) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT 1 FROM turns WHERE snapshot = ?1 UNION ALL SELECT 1 FROM "
                                  "turns WHERE start_snapshot = ?1 UNION ALL SELECT 1 FROM "
                                  "executions WHERE first_snapshot = ?1 LIMIT 1"));
  return statement.bind(snapshot).step();
}

Result<std::vector<std::string>> Store::snapshots_of(const std::string& execution) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT snapshot FROM turns WHERE execution = ?1 UNION SELECT "
                                  "start_snapshot FROM turns WHERE execution = ?1 UNION SELECT "
                                  "first_snapshot FROM executions WHERE id = ?1"));
  statement.bind(execution);
  std::vector<std::string> ids;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return ids;
    }
    if (!statement.text(0).empty()) {
      ids.push_back(statement.text(0));
    }
  }
}

}  // namespace carrel::journal
