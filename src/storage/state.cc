#include "storage/state.h"

#include <chrono>

namespace carrel::storage {

namespace {

// For a list of more than two words SQLite makes a table of its own, with its own pages, for each
// row that is written.
#define CARREL_SANDBOX_TABLE                                                                   \
  "(id TEXT PRIMARY KEY, name TEXT, state TEXT NOT NULL CHECK (state = 'creating' OR state = " \
  "'running' OR state = 'stopped' OR state = 'ended'), spec TEXT NOT NULL, enforcement TEXT "  \
  "NOT NULL DEFAULT '[]', created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT 0, "  \
  "reason TEXT NOT NULL DEFAULT '', wakes INTEGER NOT NULL DEFAULT 0) STRICT;"

constexpr char kSchema[] = "CREATE TABLE IF NOT EXISTS sandboxes " CARREL_SANDBOX_TABLE
                           "CREATE UNIQUE INDEX IF NOT EXISTS live_names ON sandboxes (name)"
                           "  WHERE name IS NOT NULL AND state <> 'ended';"
                           // Those that ended are many, and are known for long.
                           "CREATE INDEX IF NOT EXISTS live_ids ON sandboxes (id)"
                           "  WHERE state IN ('creating', 'running');";
constexpr std::int64_t kSchemaVersion = 2;
constexpr char kNoteVersion[] = "PRAGMA user_version = 2;";

// From a table that knows no sandboxes that are stopped (0), or that has its states as a list (1).
#define CARREL_OLD_COLUMNS "id, name, state, spec, enforcement, created_ms, ended_ms, reason"
#define CARREL_NEW_TABLE(columns)                                                          \
  "CREATE TABLE new_sandboxes " CARREL_SANDBOX_TABLE "INSERT INTO new_sandboxes (" columns \
  ") SELECT " columns                                                                      \
  "  FROM sandboxes;"                                                                      \
  "DROP TABLE sandboxes;"                                                                  \
  "ALTER TABLE new_sandboxes RENAME TO sandboxes;"                                         \
  "PRAGMA user_version = 2;"
constexpr const char* kFrom[] = {CARREL_NEW_TABLE(CARREL_OLD_COLUMNS),
                                 CARREL_NEW_TABLE(CARREL_OLD_COLUMNS ", wakes")};

Result<std::int64_t> number_of(Database& database, const char* sql) {
  CARREL_ASSIGN(auto statement, database.prepare(sql));
  CARREL_TRY(statement.step());
  return statement.number(0);
}

// Somebody else may have done it since the version was read.
Status rebuild(Database& database) {
  CARREL_ASSIGN(const std::int64_t version, number_of(database, "PRAGMA user_version"));
  CARREL_ASSIGN(const std::int64_t tables,
                number_of(database, "SELECT count(*) FROM sqlite_master WHERE name = 'sandboxes'"));
  if (version >= kSchemaVersion) {
    return {};
  }
  return database.execute(tables == 0 ? kNoteVersion : kFrom[version == 1 ? 1 : 0]);
}

Status bring_up_to_date(Database& database) {
  CARREL_ASSIGN(const std::int64_t version, number_of(database, "PRAGMA user_version"));
  if (version >= kSchemaVersion) {
    return {};
  }
  CARREL_TRY(database.execute("BEGIN IMMEDIATE"));
  Status done = rebuild(database);
  if (done.ok()) {
    done = database.execute("COMMIT");
  }
  if (!done.ok()) {
    (void)database.execute("ROLLBACK");
  }
  return done;
}

SandboxRow read_row(const Database::Statement& statement) {
  SandboxRow row;
  row.id = statement.text(0);
  row.name = statement.text(1);
  row.state = statement.text(2);
  row.spec = statement.text(3);
  row.enforcement = statement.text(4);
  row.created_ms = statement.number(5);
  row.ended_ms = statement.number(6);
  row.reason = statement.text(7);
  row.wake = statement.number(8) != 0 ? Wake::kWhenUsed : Wake::kWhenTold;
  return row;
}

#define CARREL_SANDBOX_COLUMNS \
  "id, name, state, spec, enforcement, created_ms, ended_ms, reason, wakes"

}  // namespace

Result<State> State::open(const Home& home) {
  CARREL_ASSIGN(Database database, Database::open(home.path() + "/state.db"));
  return open(std::move(database));
}

Result<State> State::open(Database database) {
  CARREL_TRY(bring_up_to_date(database));
  CARREL_TRY(database.execute(kSchema));
  return State(std::move(database));
}

Status State::add(const SandboxRow& row, Lasting lasting) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT INTO sandboxes (id, name, state, spec, enforcement, "
                                  "created_ms) VALUES (?, ?, ?, ?, ?, ?)"));
  statement.bind(row.id);
  if (row.name.empty()) {
    statement.bind_null();
  } else {
    statement.bind(row.name);
  }
  statement.bind(row.state).bind(row.spec).bind(row.enforcement).bind(row.created_ms);
  const Database::Lightly lightly(database_, lasting);
  auto added = statement.step();
  if (!added.ok()) {
    if (added.error().code == Code::kConflict) {
      return Error{Code::kConflict, 0, "there is already a sandbox named '" + row.name + "'",
                   "choose another name or remove that one"};
    }
    return added.error();
  }
  return {};
}

Status State::set_running(const std::string& id, const std::string& enforcement) {
  CARREL_ASSIGN(auto statement, database_.prepare("UPDATE sandboxes SET state = 'running', "
                                                  "enforcement = ? WHERE id = ?"));
  const Database::Lightly lightly(database_, Lasting::kUnsynced);
  auto set = statement.bind(enforcement).bind(id).step();
  return set.ok() ? Status() : Status(set.error());
}

Status State::set_ended(const std::string& id, const std::string& reason) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE sandboxes SET state = 'ended', ended_ms = ?, reason = ? "
                                  "WHERE id = ? AND state <> 'ended'"));
  CARREL_TRY(statement.bind(wall_clock_ms()).bind(reason).bind(id).step());
  return {};
}

Status State::set_stopped(const std::string& id, const std::string& reason, Wake wake) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE sandboxes SET state = 'stopped', ended_ms = ?, reason = "
                                  "?, wakes = ? WHERE id = ? AND state <> 'ended'"));
  statement.bind(wall_clock_ms()).bind(reason);
  CARREL_TRY(statement.bind(std::int64_t{wake == Wake::kWhenUsed ? 1 : 0}).bind(id).step());
  return {};
}

Status State::start_again(const std::string& id, const std::string& spec) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("UPDATE sandboxes SET state = 'creating', spec = ?, ended_ms = "
                                  "0, reason = '' WHERE id = ? AND state = 'stopped' "
                                  "RETURNING id"));
  CARREL_ASSIGN(const bool changed, statement.bind(spec).bind(id).step());
  if (!changed) {
    return Error{Code::kConflict, 0, "sandbox " + id + " is not stopped", {}};
  }
  CARREL_TRY(statement.step());
  return {};
}

Status State::forget(const std::string& id) {
  CARREL_ASSIGN(auto statement, database_.prepare("DELETE FROM sandboxes WHERE id = ?"));
  CARREL_TRY(statement.bind(id).step());
  return {};
}

Status State::forget_old(int keep) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("DELETE FROM sandboxes WHERE state = 'ended' AND id NOT IN "
                                  "(SELECT id FROM sandboxes WHERE state = 'ended' "
                                  "ORDER BY ended_ms DESC LIMIT ?)"));
  CARREL_TRY(statement.bind(std::int64_t{keep}).step());
  return {};
}

Result<std::optional<SandboxRow>> State::find(const std::string& id) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT " CARREL_SANDBOX_COLUMNS " FROM sandboxes WHERE id = ?"));
  CARREL_ASSIGN(bool found, statement.bind(id).step());
  if (!found) {
    return std::optional<SandboxRow>();
  }
  return std::optional<SandboxRow>(read_row(statement));
}

Result<std::vector<SandboxRow>> State::list(Which which) {
  CARREL_ASSIGN(auto statement,
                database_.prepare(which == Which::kAll ? "SELECT " CARREL_SANDBOX_COLUMNS
                                                         " FROM sandboxes ORDER BY created_ms"
                                                       : "SELECT " CARREL_SANDBOX_COLUMNS
                                                         " FROM sandboxes WHERE state <> 'ended' "
                                                         "ORDER BY created_ms"));
  std::vector<SandboxRow> rows;
  for (;;) {
    CARREL_ASSIGN(bool more, statement.step());
    if (!more) {
      return rows;
    }
    rows.push_back(read_row(statement));
  }
}

std::int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace carrel::storage
