#include "storage/workspaces/records.h"

#include <functional>

#include "storage/state.h"

namespace carrel::storage {

namespace {

constexpr char kSchema[] = R"(
CREATE TABLE IF NOT EXISTS workspaces (
  name TEXT PRIMARY KEY,
  form TEXT NOT NULL CHECK (form IN ('plain', 'upper')),
  created_ms INTEGER NOT NULL,
  used_ms INTEGER NOT NULL,
  disk_bytes INTEGER NOT NULL,
  base TEXT NOT NULL,
  head TEXT NOT NULL,
  source TEXT NOT NULL,
  restoring TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (
  id TEXT PRIMARY KEY,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  frozen_us INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS snapshot_names ON snapshots (workspace, name) WHERE name <> '';
CREATE TABLE IF NOT EXISTS snapshot_layers (
  snapshot TEXT NOT NULL, position INTEGER NOT NULL, layer TEXT NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (snapshot, position)
) STRICT;
CREATE TABLE IF NOT EXISTS workspace_layers (
  workspace TEXT NOT NULL, position INTEGER NOT NULL, layer TEXT NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (workspace, position)
) STRICT;
CREATE TABLE IF NOT EXISTS snapshot_holds (
  snapshot TEXT NOT NULL, holder TEXT NOT NULL, made TEXT NOT NULL CHECK (made IN ('yes', 'no')),
  PRIMARY KEY (snapshot, holder)
) STRICT;
CREATE INDEX IF NOT EXISTS snapshot_holders ON snapshot_holds (holder);
)";

constexpr char kAddSnapshotLayer[] =
    "INSERT INTO snapshot_layers (snapshot, position, layer, digest) VALUES (?, ?, ?, ?)";

#define CARREL_WORKSPACE_COLUMNS \
  "name, form, created_ms, used_ms, disk_bytes, base, head, source, restoring, owner, for_box"

#define CARREL_SNAPSHOT_COLUMNS "id, workspace, name, created_ms, frozen_us, changed, bytes, asked"

WorkspaceRow read_workspace(const Database::Statement& statement) {
  WorkspaceRow row;
  row.name = statement.text(0);
  row.form = statement.text(1) == "upper" ? TreeForm::kUpper : TreeForm::kPlain;
  row.created_ms = statement.number(2);
  row.used_ms = statement.number(3);
  row.disk_bytes = static_cast<std::uint64_t>(statement.number(4));
  row.base = statement.text(5);
  row.head = statement.text(6);
  row.source = statement.text(7);
  row.restoring = statement.text(8);
  row.owner = statement.text(9);
  row.for_box = statement.text(10);
  return row;
}

}  // namespace

Result<WorkspaceRecords> WorkspaceRecords::open(const Home& home) {
  CARREL_ASSIGN(Database database, Database::open(home.path() + "/state.db"));
  CARREL_TRY(database.execute(kSchema));
  WorkspaceRecords records(std::move(database));
  CARREL_TRY(records.bring_up_to_date());
  return records;
}

Status WorkspaceRecords::run(const char* sql, std::initializer_list<std::string_view> values) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  for (const std::string_view value : values) {
    statement.bind(value);
  }
  CARREL_TRY(statement.step());
  return {};
}

Status WorkspaceRecords::in_transaction(const std::function<Status()>& work) {
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

// The next snapshot of a workspace is compared with the newest that it has left.
Status WorkspaceRecords::forget_lost_heads() {
  return run(
      "UPDATE workspaces SET head = coalesce((SELECT id FROM snapshots WHERE workspace = "
      "workspaces.name ORDER BY created_ms DESC, rowid DESC LIMIT 1), '') WHERE head <> '' "
      "AND head NOT IN (SELECT id FROM snapshots)",
      {});
}

Status WorkspaceRecords::add_layers(const char* sql, const std::string& owner,
                                    const std::vector<LayerRef>& layers) {
  std::int64_t position = 0;
  for (const LayerRef& layer : layers) {
    CARREL_ASSIGN(auto statement, database_.prepare(sql));
    CARREL_TRY(statement.bind(owner).bind(position++).bind(layer.id).bind(layer.digest).step());
    if (layer.bytes != 0) {
      CARREL_TRY(set_size(layer.id, layer.bytes));
    }
  }
  return {};
}

Status WorkspaceRecords::add(const WorkspaceRow& row) {
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(auto statement,
                  database_.prepare("INSERT INTO workspaces (name, form, created_ms, used_ms, "
                                    "disk_bytes, base, head, source, owner, for_box) VALUES "
                                    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    statement.bind(row.name).bind(row.form == TreeForm::kUpper ? "upper" : "plain");
    statement.bind(row.created_ms).bind(row.used_ms);
    statement.bind(static_cast<std::int64_t>(row.disk_bytes));
    statement.bind(row.base).bind(row.head).bind(row.source);
    auto added = statement.bind(row.owner).bind(row.for_box).step();
    if (!added.ok()) {
      return added.error().code != Code::kConflict
                 ? added.error()
                 : Error{Code::kConflict, 0, "there is already a workspace '" + row.name + "'", {}};
    }
    if (row.base.empty()) {
      return {};
    }
    CARREL_ASSIGN(auto base, database_.prepare("SELECT id FROM snapshots WHERE id = ?"));
    CARREL_ASSIGN(const bool known, base.bind(row.base).step());
    if (!known) {  // a fork of nothing would be an empty one
      return Error{Code::kNotFound, 0, "Snapshot " + row.base + " not found", {}};
    }
    return run(
        "INSERT INTO workspace_layers SELECT ?, position, layer, digest FROM "
        "snapshot_layers WHERE snapshot = ?",
        {row.name, row.base});
  });
}

Result<std::optional<WorkspaceRow>> WorkspaceRecords::find(const std::string& name) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT " CARREL_WORKSPACE_COLUMNS
                                                  " FROM workspaces WHERE name = ?"));
  CARREL_ASSIGN(const bool found, statement.bind(name).step());
  return found ? std::optional<WorkspaceRow>(read_workspace(statement)) : std::nullopt;
}

Result<std::vector<WorkspaceRow>> WorkspaceRecords::list() {
  return list_workspaces(
      "SELECT " CARREL_WORKSPACE_COLUMNS " FROM workspaces WHERE ?1 = '' ORDER BY name", "");
}

Result<std::vector<WorkspaceRow>> WorkspaceRecords::owned_by(const std::string& owner) {
  return list_workspaces(
      "SELECT " CARREL_WORKSPACE_COLUMNS " FROM workspaces WHERE owner = ?1 ORDER BY name", owner);
}

Result<std::vector<WorkspaceRow>> WorkspaceRecords::list_workspaces(const char* sql,
                                                                    const std::string& value) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  statement.bind(value);
  std::vector<WorkspaceRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return rows;
    }
    rows.push_back(read_workspace(statement));
  }
}

Status WorkspaceRecords::touch(const std::string& name) {
  return run("UPDATE workspaces SET used_ms = CAST(? AS INTEGER) WHERE name = ?",
             {std::to_string(wall_clock_ms()), name});
}

Status WorkspaceRecords::set_restoring(const std::string& name, const std::string& snapshot) {
  return run("UPDATE workspaces SET restoring = ? WHERE name = ?", {snapshot, name});
}

Status WorkspaceRecords::set_head(const std::string& name, const std::string& snapshot) {
  return run("UPDATE workspaces SET head = ?, restoring = '' WHERE name = ?", {snapshot, name});
}

Status WorkspaceRecords::set_base(const std::string& name, const std::string& snapshot) {
  return in_transaction([&]() -> Status {
    CARREL_TRY(run("DELETE FROM workspace_layers WHERE workspace = ?", {name}));
    CARREL_TRY(
        run("INSERT INTO workspace_layers SELECT ?, position, layer, digest FROM "
            "snapshot_layers WHERE snapshot = ?",
            {name, snapshot}));
    return run("UPDATE workspaces SET base = ?, head = ?, restoring = '' WHERE name = ?",
               {snapshot, snapshot, name});
  });
}

Status WorkspaceRecords::remove(const std::string& name) {
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(auto held,
                  database_.prepare("SELECT count(DISTINCT snapshot) FROM snapshot_holds "
                                    "WHERE snapshot IN (SELECT id FROM snapshots WHERE "
                                    "workspace = ?)"));
    CARREL_TRY(held.bind(name).step());
    if (held.number(0) > 0) {
      return Error{Code::kConflict, 0,
                   "the workspace '" + name + "' has " + std::to_string(held.number(0)) +
                       " snapshots that turns of flows refer to",
                   "see 'carrel flow ls'; 'carrel flow rm' lets go of them"};
    }
    CARREL_TRY(
        run("DELETE FROM snapshot_layers WHERE snapshot IN (SELECT id FROM snapshots WHERE "
            "workspace = ?)",
            {name}));
    CARREL_TRY(run("DELETE FROM snapshots WHERE workspace = ?", {name}));
    CARREL_TRY(run("DELETE FROM workspace_layers WHERE workspace = ?", {name}));
    CARREL_TRY(run("DELETE FROM workspaces WHERE name = ?", {name}));
    return forget_lost_heads();
  });
}

Status WorkspaceRecords::add_snapshot(const SnapshotRow& row, const std::string& holder) {
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(auto statement,
                  database_.prepare("INSERT INTO snapshots (id, workspace, name, created_ms, "
                                    "frozen_us, changed, bytes, asked) VALUES (?, ?, ?, ?, ?, ?, "
                                    "?, ?)"));
    statement.bind(row.id).bind(row.workspace).bind(row.name).bind(row.created_ms);
    statement.bind(row.frozen_us).bind(static_cast<std::int64_t>(row.changed));
    statement.bind(static_cast<std::int64_t>(row.bytes));
    auto added = statement.bind(std::int64_t{row.asked == SnapshotRow::Asked::kYes ? 1 : 0}).step();
    if (!added.ok()) {
      return added.error().code != Code::kConflict
                 ? added.error()
                 : Error{Code::kConflict,
                         0,
                         "the workspace already has a snapshot named '" + row.name + "'",
                         {}};
    }
    CARREL_TRY(add_layers(kAddSnapshotLayer, row.id, row.layers));
    if (!holder.empty()) {
      CARREL_TRY(add_hold(row.id, holder, "yes"));
    }
    return run("UPDATE workspaces SET head = ? WHERE name = ?", {row.id, row.workspace});
  });
}

Status WorkspaceRecords::add_hold(const std::string& snapshot, const std::string& holder,
                                  const char* made) {
  return run("INSERT OR IGNORE INTO snapshot_holds (snapshot, holder, made) VALUES (?, ?, ?)",
             {snapshot, holder, made});
}

Status WorkspaceRecords::hold(const std::string& snapshot, const std::string& holder) {
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(auto known, database_.prepare("SELECT 1 FROM snapshots WHERE id = ?"));
    CARREL_ASSIGN(const bool there, known.bind(snapshot).step());
    if (!there) {
      return Error{Code::kNotFound, 0, "Snapshot " + snapshot + " not found", {}};
    }
    return add_hold(snapshot, holder, "no");
  });
}

Result<std::optional<SnapshotRow>> WorkspaceRecords::held_by(const std::string& holder) {
  CARREL_ASSIGN(std::vector<SnapshotRow> rows,
                list_snapshots("SELECT " CARREL_SNAPSHOT_COLUMNS
                               " FROM snapshots WHERE id IN (SELECT snapshot FROM snapshot_holds "
                               "WHERE holder = ?1)",
                               holder));
  return rows.empty() ? std::nullopt : std::optional<SnapshotRow>(std::move(rows.front()));
}

Result<bool> WorkspaceRecords::is_held(const std::string& id) {
  CARREL_ASSIGN(auto held, database_.prepare("SELECT 1 FROM snapshot_holds WHERE snapshot = ?"));
  return held.bind(id).step();
}

Status WorkspaceRecords::let_go(const std::string& snapshot) {
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(auto own, database_.prepare(
                                "SELECT 1 FROM snapshots WHERE id = ?1 AND name = '' AND "
                                "?1 IN (SELECT snapshot FROM snapshot_holds WHERE made = 'yes') "
                                "AND ?1 NOT IN (SELECT head FROM workspaces UNION ALL SELECT "
                                "restoring FROM workspaces)"));
    CARREL_ASSIGN(const bool goes, own.bind(snapshot).step());
    CARREL_TRY(run("DELETE FROM snapshot_holds WHERE snapshot = ?", {snapshot}));
    if (!goes) {
      return {};
    }
    CARREL_TRY(run("DELETE FROM snapshot_layers WHERE snapshot = ?", {snapshot}));
    return run("DELETE FROM snapshots WHERE id = ?", {snapshot});
  });
}

Result<bool> WorkspaceRecords::is_head(const std::string& snapshot) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT 1 FROM workspaces WHERE head = ?1 OR restoring = ?1"));
  return statement.bind(snapshot).step();
}

Result<std::vector<LayerRef>> WorkspaceRecords::list_layers(const char* sql,
                                                            const std::string& owner) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  if (!owner.empty()) {
    statement.bind(owner);
  }
  std::vector<LayerRef> layers;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return layers;
    }
    layers.push_back({statement.text(0), statement.text(1)});
  }
}

Result<std::vector<SnapshotRow>> WorkspaceRecords::snapshots(const std::string& workspace) {
  return list_snapshots("SELECT " CARREL_SNAPSHOT_COLUMNS
                        " FROM snapshots WHERE ?1 = '' OR "
                        "workspace = ?1 ORDER BY created_ms, rowid",
                        workspace);
}

Result<std::optional<SnapshotRow>> WorkspaceRecords::snapshot(const std::string& id) {
  CARREL_ASSIGN(
      std::vector<SnapshotRow> rows,
      list_snapshots("SELECT " CARREL_SNAPSHOT_COLUMNS " FROM snapshots WHERE id = ?1", id));
  return rows.empty() ? std::nullopt : std::optional<SnapshotRow>(std::move(rows.front()));
}

Result<std::vector<SnapshotRow>> WorkspaceRecords::list_snapshots(const char* sql,
                                                                  const std::string& value) {
  CARREL_ASSIGN(auto statement, database_.prepare(sql));
  statement.bind(value);
  std::vector<SnapshotRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      break;
    }
    SnapshotRow row;
    row.id = statement.text(0);
    row.workspace = statement.text(1);
    row.name = statement.text(2);
    row.created_ms = statement.number(3);
    row.frozen_us = statement.number(4);
    row.changed = static_cast<std::uint64_t>(statement.number(5));
    row.bytes = static_cast<std::uint64_t>(statement.number(6));
    row.asked = statement.number(7) != 0 ? SnapshotRow::Asked::kYes : SnapshotRow::Asked::kNo;
    rows.push_back(std::move(row));
  }
  for (SnapshotRow& row : rows) {
    CARREL_ASSIGN(row.layers, list_layers("SELECT layer, digest FROM snapshot_layers WHERE "
                                          "snapshot = ? ORDER BY position",
                                          row.id));
  }
  return rows;
}

Status WorkspaceRecords::remove_snapshot(const std::string& id) {
  return in_transaction([&]() -> Status {
    // One that stood for a sandbox has no tree yet, and can as well become another.
    CARREL_TRY(
        run("UPDATE workspaces SET restoring = coalesce((SELECT id FROM snapshots WHERE workspace "
            "= workspaces.name AND id <> ?1 ORDER BY created_ms DESC, rowid DESC LIMIT 1), '') "
            "WHERE restoring = ?1 AND form = 'plain' AND for_box <> ''",
            {id}));
    CARREL_ASSIGN(auto restoring,
                  database_.prepare("SELECT name FROM workspaces WHERE restoring = ?"));
    CARREL_ASSIGN(const bool needed, restoring.bind(id).step());
    if (needed) {
      return Error{Code::kConflict, 0,
                   "the workspace '" + restoring.text(0) + "' is being restored to " + id,
                   "any command that uses the workspace finishes that"};
    }
    CARREL_ASSIGN(const bool held, is_held(id));
    if (held) {
      return Error{Code::kConflict, 0, "a turn of a flow refers to the snapshot " + id,
                   "see 'carrel flow ls'; 'carrel flow rm' lets go of it"};
    }
    CARREL_TRY(run("DELETE FROM snapshot_layers WHERE snapshot = ?", {id}));
    CARREL_TRY(run("DELETE FROM snapshots WHERE id = ?", {id}));
    return forget_lost_heads();
  });
}

Status WorkspaceRecords::set_layers(const std::string& snapshot,
                                    const std::vector<LayerRef>& layers) {
  return in_transaction([&]() -> Status {
    CARREL_TRY(run("DELETE FROM snapshot_layers WHERE snapshot = ?", {snapshot}));
    return add_layers(kAddSnapshotLayer, snapshot, layers);
  });
}

Result<std::vector<LayerRef>> WorkspaceRecords::layers() {
  return list_layers(
      "SELECT layer, digest FROM snapshot_layers UNION SELECT layer, digest FROM "
      "workspace_layers",
      "");
}

Result<std::vector<LayerRef>> WorkspaceRecords::base_layers(const std::string& workspace) {
  return list_layers(
      "SELECT layer, digest FROM workspace_layers WHERE workspace = ? ORDER BY "
      "position",
      workspace);
}

}  // namespace carrel::storage
