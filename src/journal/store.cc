#include "journal/store.h"

#include <cstdio>
#include <ctime>

#include "storage/state.h"

namespace carrel::journal {
namespace {

using storage::Database;

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS executions (
  id TEXT PRIMARY KEY, flow TEXT NOT NULL, workspace TEXT NOT NULL, first_snapshot TEXT NOT NULL,
  first_identity TEXT NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL, runs INTEGER NOT NULL,
  started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, source TEXT NOT NULL,
  replay TEXT NOT NULL, logs TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS executions_newest ON executions (started_ms);
CREATE INDEX IF NOT EXISTS executions_of_flow ON executions (flow, started_ms);
CREATE INDEX IF NOT EXISTS executions_first ON executions (first_snapshot);
CREATE TABLE IF NOT EXISTS turns (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution TEXT NOT NULL,
  run INTEGER NOT NULL, position INTEGER NOT NULL, attempt INTEGER NOT NULL, flow TEXT NOT NULL,
  name TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL, parts TEXT NOT NULL,
  text TEXT NOT NULL, data TEXT NOT NULL, error TEXT NOT NULL, start_snapshot TEXT NOT NULL,
  start_identity TEXT NOT NULL, snapshot TEXT NOT NULL, identity TEXT NOT NULL,
  changed INTEGER NOT NULL, source TEXT NOT NULL, effects INTEGER NOT NULL,
  started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, logs TEXT NOT NULL, sum TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS turns_place ON turns (execution, run, position, attempt);
CREATE INDEX IF NOT EXISTS turns_key ON turns (key, number) WHERE state = 'finished';
CREATE INDEX IF NOT EXISTS turns_name ON turns (flow, name, number) WHERE state = 'finished';
CREATE INDEX IF NOT EXISTS turns_snapshot ON turns (snapshot);
CREATE INDEX IF NOT EXISTS turns_start ON turns (start_snapshot);
CREATE TABLE IF NOT EXISTS calls (
  turn TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  key TEXT NOT NULL, arguments TEXT NOT NULL, result TEXT NOT NULL, payload TEXT,
  exit_code INTEGER, succeeded INTEGER NOT NULL, cached INTEGER NOT NULL,
  started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, sum TEXT NOT NULL,
  PRIMARY KEY (turn, position)
) STRICT;
CREATE INDEX IF NOT EXISTS calls_key ON calls (key) WHERE payload IS NOT NULL;
CREATE TABLE IF NOT EXISTS artifacts (
  turn TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (turn, name)
) STRICT;
CREATE TABLE IF NOT EXISTS waits (
  execution TEXT NOT NULL, name TEXT NOT NULL, question TEXT NOT NULL, schema TEXT NOT NULL,
  state TEXT NOT NULL, answer TEXT NOT NULL, asked_ms INTEGER NOT NULL,
  answered_ms INTEGER NOT NULL, PRIMARY KEY (execution, name)
) STRICT;
CREATE INDEX IF NOT EXISTS waits_open ON waits (asked_ms) WHERE state = 'open';
CREATE TABLE IF NOT EXISTS intents (
  id TEXT PRIMARY KEY, execution TEXT NOT NULL, kind TEXT NOT NULL, snapshot TEXT NOT NULL
) STRICT;
)";

#define CARREL_EXECUTION_COLUMNS                                                          \
  "id, flow, workspace, first_snapshot, first_identity, state, error, runs, started_ms, " \
  "ended_ms, source, replay, logs"

#define CARREL_WAIT_COLUMNS \
  "execution, name, question, schema, state, answer, asked_ms, answered_ms"

WaitRow read_wait(const Database::Statement& statement) {
  WaitRow row;
  row.execution = statement.text(0);
  row.name = statement.text(1);
  row.question = statement.text(2);
  row.schema = statement.text(3);
  row.state = statement.text(4);
  row.answer = statement.text(5);
  row.asked_ms = statement.number(6);
  row.answered_ms = statement.number(7);
  return row;
}

Result<Database> open_whole(const std::string& path) {
  CARREL_ASSIGN(Database database, Database::open(path));
  CARREL_TRY(database.execute(kSchema));
  // Reads a page of each: a file that ends too early is noticed here.
  CARREL_TRY(database.execute(
      "SELECT count(*) FROM (SELECT 1 FROM executions LIMIT 1); SELECT max(number) FROM turns; "
      "SELECT count(*) FROM intents"));
  return database;
}

}  // namespace

Result<std::shared_ptr<Store>> Store::open(const storage::Home& home) {
  const std::string path = home.path() + "/journal.db";
  auto database = open_whole(path);
  std::string warning;
  if (!database.ok() && storage::is_damage(database.error())) {
    const std::string aside = path + ".damaged-" + std::to_string(storage::wall_clock_ms());
    if (std::rename(path.c_str(), aside.c_str()) != 0) {
      return system_error("move the damaged journal '" + path + "' aside");
    }
    (void)std::remove((path + "-wal").c_str());
    (void)std::remove((path + "-shm").c_str());
    warning = "the journal was damaged: it is '" + aside + "' now, and a new one begins";
    database = open_whole(path);
  }
  if (!database.ok()) {
    return database.error();
  }
  std::shared_ptr<Store> store(new Store(std::move(database.value())));
  if (!warning.empty()) {
    store->warn(std::move(warning));
  }
  return store;
}

Status Store::in_transaction(const std::function<Status()>& work) {
  CARREL_TRY(database_.execute("BEGIN IMMEDIATE"));
  Status done = work();
  if (done.ok()) {
    done = database_.execute("COMMIT");
  }
  if (!done.ok()) {
    (void)database_.execute("ROLLBACK");
  }
  return done;
}

Status Store::in_passing(const std::function<Status()>& work) {
  CARREL_TRY(database_.execute("PRAGMA synchronous=NORMAL"));
  Status done = work();
  CARREL_TRY(database_.execute("PRAGMA synchronous=FULL"));
  return done;
}

Result<std::string> Store::store_name() {
  CARREL_ASSIGN(auto added, database_.prepare("INSERT OR IGNORE INTO about (name, value) VALUES "
                                              "('store', ?)"));
  CARREL_ASSIGN(auto known, database_.prepare("SELECT value FROM about WHERE name = 'store'"));
  CARREL_ASSIGN(bool found, known.step());
  if (found) {
    return known.text(0);
  }
  CARREL_TRY(added.bind(storage::random_hex(32)).step());
  CARREL_ASSIGN(auto again, database_.prepare("SELECT value FROM about WHERE name = 'store'"));
  CARREL_ASSIGN(found, again.step());
  return again.text(0);
}

Status Store::add_execution(const ExecutionRow& row) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT INTO executions (" CARREL_EXECUTION_COLUMNS
                                  ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                  "?)"));
  statement.bind(row.id).bind(row.flow).bind(row.workspace).bind(row.first_snapshot);
  statement.bind(row.first_identity).bind(row.state).bind(row.error).bind(row.runs);
  statement.bind(row.started_ms).bind(row.ended_ms).bind(row.source).bind(row.replay);
  CARREL_TRY(statement.bind(row.logs).step());
  return {};
}

Status Store::update_execution(const ExecutionRow& row) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE executions SET first_snapshot = ?, first_identity = ?, "
                                  "state = ?, error = ?, runs = ?, ended_ms = ?, logs = ? WHERE "
                                  "id = ?"));
  statement.bind(row.first_snapshot).bind(row.first_identity).bind(row.state).bind(row.error);
  statement.bind(row.runs).bind(row.ended_ms).bind(row.logs);
  CARREL_TRY(statement.bind(row.id).step());
  return {};
}

Result<std::vector<ExecutionRow>> Store::list_executions(
    const char* sql, const std::function<void(Database::Statement&)>& bind) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  bind(statement);
  std::vector<ExecutionRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return rows;
    }
    ExecutionRow row;
    row.id = statement.text(0);
    row.flow = statement.text(1);
    row.workspace = statement.text(2);
    row.first_snapshot = statement.text(3);
    row.first_identity = statement.text(4);
    row.state = statement.text(5);
    row.error = statement.text(6);
    row.runs = statement.number(7);
    row.started_ms = statement.number(8);
    row.ended_ms = statement.number(9);
    row.source = statement.text(10);
    row.replay = statement.text(11);
    row.logs = statement.text(12);
    rows.push_back(std::move(row));
  }
}

Result<std::optional<ExecutionRow>> Store::execution(const std::string& id) {
  CARREL_ASSIGN(std::vector<ExecutionRow> rows,
                list_executions("SELECT " CARREL_EXECUTION_COLUMNS " FROM executions WHERE id = ?",
                                [&](Database::Statement& to) { to.bind(id); }));
  return rows.empty() ? std::nullopt : std::optional<ExecutionRow>(std::move(rows.front()));
}

Result<std::vector<ExecutionRow>> Store::executions_like(const std::string& beginning) {
  // Names are ASCII: nothing that begins so comes after it with the largest character behind it.
  return list_executions("SELECT " CARREL_EXECUTION_COLUMNS
                         " FROM executions WHERE id >= ?1 AND id < ?1 || '~' LIMIT 2",
                         [&](Database::Statement& to) { to.bind(beginning); });
}

Result<std::vector<ExecutionRow>> Store::executions(const std::string& flow, std::size_t most) {
  const bool all = flow.empty();
  return list_executions(
      all ? "SELECT " CARREL_EXECUTION_COLUMNS
            " FROM executions ORDER BY started_ms DESC, rowid DESC LIMIT ?"
          : "SELECT " CARREL_EXECUTION_COLUMNS
            " FROM executions WHERE flow = ? ORDER BY started_ms DESC, rowid DESC LIMIT ?",
      [&](Database::Statement& to) {
        if (!all) {
          to.bind(flow);
        }
        to.bind(static_cast<std::int64_t>(most));
      });
}

Status Store::remove_execution(const std::string& id) {
  for (const char* sql :
       {"DELETE FROM calls WHERE turn IN (SELECT id FROM turns WHERE execution = ?)",
        "DELETE FROM artifacts WHERE turn IN (SELECT id FROM turns WHERE execution = ?)",
        "DELETE FROM turns WHERE execution = ?", "DELETE FROM waits WHERE execution = ?",
        "DELETE FROM executions WHERE id = ?"}) {
    CARREL_ASSIGN(auto statement, database_.prepare(sql));
    CARREL_TRY(statement.bind(id).step());
  }
  return {};
}

Status Store::add_wait(const WaitRow& row) {
  CARREL_ASSIGN(auto statement, database_.prepare("INSERT INTO waits (" CARREL_WAIT_COLUMNS
                                                  ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.bind(row.execution).bind(row.name).bind(row.question).bind(row.schema);
  statement.bind(row.state).bind(row.answer).bind(row.asked_ms);
  CARREL_TRY(statement.bind(row.answered_ms).step());
  return {};
}

Status Store::end_wait(const WaitRow& row) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE waits SET state = ?, answer = ?, answered_ms = ? WHERE "
                                  "execution = ? AND name = ?"));
  statement.bind(row.state).bind(row.answer).bind(row.answered_ms);
  CARREL_TRY(statement.bind(row.execution).bind(row.name).step());
  return {};
}

Result<std::optional<WaitRow>> Store::wait(const std::string& execution, const std::string& name) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT " CARREL_WAIT_COLUMNS
                                                  " FROM waits WHERE execution = ? AND name = ?"));
  CARREL_ASSIGN(const bool found, statement.bind(execution).bind(name).step());
  return found ? std::optional<WaitRow>(read_wait(statement)) : std::nullopt;
}

Result<std::vector<WaitRow>> Store::open_waits() {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT " CARREL_WAIT_COLUMNS
                                  " FROM waits WHERE state = 'open' ORDER BY asked_ms"));
  std::vector<WaitRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return rows;
    }
    rows.push_back(read_wait(statement));
  }
}

Status Store::add_intent(const Intent& intent) {
  CARREL_ASSIGN(auto statement, database_.prepare("INSERT OR REPLACE INTO intents (id, execution, "
                                                  "kind, snapshot) VALUES (?, ?, ?, ?)"));
  statement.bind(intent.id).bind(intent.execution);
  statement.bind(intent.kind == Intent::Kind::kKeep ? "keep" : "let go");
  CARREL_TRY(statement.bind(intent.snapshot).step());
  return {};
}

Status Store::clear_intent(const std::string& id) {
  CARREL_ASSIGN(auto statement, database_.prepare("DELETE FROM intents WHERE id = ?"));
  CARREL_TRY(statement.bind(id).step());
  return {};
}

Result<std::vector<Intent>> Store::intents() {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT id, execution, kind, snapshot FROM intents"));
  std::vector<Intent> all;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return all;
    }
    all.push_back({statement.text(0), statement.text(1),
                   statement.text(2) == "keep" ? Intent::Kind::kKeep : Intent::Kind::kLetGo,
                   statement.text(3)});
  }
}

Result<storage::WorkspaceRecords*> Store::snapshots(const storage::Home& home) {
  if (!snapshots_.has_value()) {
    CARREL_ASSIGN(storage::WorkspaceRecords records, storage::WorkspaceRecords::open(home));
    snapshots_.emplace(std::move(records));
  }
  return &*snapshots_;
}

}  // namespace carrel::journal
