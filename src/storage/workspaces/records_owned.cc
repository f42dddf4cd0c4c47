#include "storage/workspaces/records.h"

// Whose a workspace is, what it goes with, and what layers take (decision 45).
namespace carrel::storage {

namespace {

// What came later.
constexpr char kOwners[] = R"(
ALTER TABLE workspaces ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE workspaces ADD COLUMN for_box TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN asked INTEGER NOT NULL DEFAULT 1;
CREATE INDEX workspace_owners ON workspaces (owner);
CREATE TABLE layer_sizes (layer TEXT PRIMARY KEY, bytes INTEGER NOT NULL) STRICT;
)";

// Names that nobody gave go to the owner of the sandbox that has them; manager::Ledger knows him. A
// named workspace can be one that the operator has for all.
constexpr char kFindOwners[] = R"(
UPDATE workspaces SET owner = coalesce((
  SELECT owners.owner FROM sandboxes JOIN owners ON owners.id = sandboxes.id
  WHERE workspaces.name = 'sandbox-' || substr(sandboxes.id, 1, 13)
     OR instr(sandboxes.spec, '"workspace":"' || workspaces.name || '"') > 0 LIMIT 1), '')
WHERE name GLOB 'sandbox-*' OR name GLOB 'fork-????????????????';
)";

#define CARREL_REFERRED_LAYERS(which)                                                            \
  "SELECT layer FROM snapshot_layers JOIN snapshots ON snapshots.id = snapshot_layers.snapshot " \
  "JOIN workspaces ON workspaces.name = snapshots.workspace " which                              \
  " UNION SELECT layer FROM workspace_layers JOIN workspaces ON workspaces.name = "              \
  "workspace_layers.workspace " which

// No snapshot of it was asked for, and none is held.
#define CARREL_NOBODY_REFERS                                                            \
  "NOT EXISTS (SELECT 1 FROM snapshots WHERE workspace = workspaces.name AND (asked = " \
  "1 OR id IN (SELECT snapshot FROM snapshot_holds)))"

}  // namespace

std::string flow_mark(std::string_view execution) { return "flow:" + std::string(execution); }

Status WorkspaceRecords::bring_up_to_date() {
  const auto number_of = [this](const char* sql) -> Result<std::int64_t> {
    CARREL_ASSIGN(auto statement, database_.prepare(sql));
    CARREL_TRY(statement.step());
    return statement.number(0);
  };
  constexpr char kKnown[] =
      "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'layer_sizes'";
  CARREL_ASSIGN(std::int64_t known, number_of(kKnown));
  if (known > 0) {
    return {};
  }
  return in_transaction([&]() -> Status {
    CARREL_ASSIGN(known, number_of(kKnown));
    if (known > 0) {  // somebody else has done it
      return {};
    }
    CARREL_TRY(database_.execute(kOwners));
    CARREL_ASSIGN(const std::int64_t tables,
                  number_of("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN "
                            "('owners', 'sandboxes')"));
    return tables == 2 ? database_.execute(kFindOwners) : Status{};
  });
}

Status WorkspaceRecords::set_for_box(const std::string& name, const std::string& box) {
  return run("UPDATE workspaces SET for_box = ? WHERE name = ?", {box, name});
}

Result<std::vector<std::string>> WorkspaceRecords::left_over() {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT name FROM workspaces WHERE for_box <> '' AND for_box NOT "
                                  "GLOB 'flow:*' AND for_box NOT IN (SELECT id FROM sandboxes "
                                  "WHERE state <> 'ended') AND " CARREL_NOBODY_REFERS));
  std::vector<std::string> names;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return names;
    }
    names.push_back(statement.text(0));
  }
}

Result<std::vector<WorkspaceRecords::OfFlow>> WorkspaceRecords::of_flows() {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT name, for_box, used_ms FROM workspaces WHERE for_box "
                                  "GLOB 'flow:*' AND " CARREL_NOBODY_REFERS));
  std::vector<OfFlow> found;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return found;
    }
    const std::string mark = statement.text(1);
    found.push_back({statement.text(0), mark.substr(flow_mark({}).size()), statement.number(2)});
  }
}

Result<std::uint64_t> WorkspaceRecords::layer_bytes(const std::string& owner) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("SELECT coalesce(sum(bytes), 0) FROM layer_sizes WHERE layer IN "
                                  "(" CARREL_REFERRED_LAYERS("WHERE owner = ?1") ")"));
  CARREL_TRY(statement.bind(owner).step());
  return static_cast<std::uint64_t>(statement.number(0));
}

Result<std::uint64_t> WorkspaceRecords::all_layer_bytes() {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT coalesce(sum(bytes), 0) FROM "
                                                  "layer_sizes WHERE layer IN "
                                                  "(" CARREL_REFERRED_LAYERS("") ")"));
  CARREL_TRY(statement.step());
  return static_cast<std::uint64_t>(statement.number(0));
}

Result<std::vector<LayerRef>> WorkspaceRecords::unmeasured() {
  return list_layers(
      "SELECT layer, digest FROM (SELECT layer, digest FROM snapshot_layers UNION SELECT layer, "
      "digest FROM workspace_layers) WHERE layer NOT IN (SELECT layer FROM layer_sizes)",
      "");
}

Status WorkspaceRecords::set_size(const std::string& layer, std::uint64_t bytes) {
  CARREL_ASSIGN(auto statement, database_.prepare("INSERT OR REPLACE INTO layer_sizes (layer, "
                                                  "bytes) VALUES (?, ?)"));
  CARREL_TRY(statement.bind(layer).bind(static_cast<std::int64_t>(bytes)).step());
  return {};
}

Status WorkspaceRecords::forget_sizes() {
  return run("DELETE FROM layer_sizes WHERE layer NOT IN (" CARREL_REFERRED_LAYERS("") ")", {});
}

}  // namespace carrel::storage
