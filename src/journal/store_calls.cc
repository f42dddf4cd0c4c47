#include <array>

#include "base/sha256.h"
#include "journal/store.h"

namespace carrel::journal {
namespace {

using storage::Database;

constexpr std::array<const char*, 6> kArtifactKinds = {"prompt", "response", "context",
                                                       "input",  "output",   "blob"};

#define CARREL_CALL_COLUMNS                                                                   \
  "turn, position, kind, name, arguments, result, exit_code, succeeded, cached, started_ms, " \
  "ended_ms"

std::string sum_of(const StoredCall& call) {
  return sha256(call.key + "\n" + call.row.turn + "\n" + (call.payload.has_value() ? "+" : "-") +
                call.payload.value_or(""));
}

CallRow read_call(const Database::Statement& statement) {
  CallRow row;
  row.turn = statement.text(0);
  row.position = statement.number(1);
  row.kind = statement.text(2) == kind_name(CallKind::kModel) ? CallKind::kModel : CallKind::kTool;
  row.name = statement.text(3);
  row.arguments = statement.text(4);
  row.result = statement.text(5);
  if (!statement.is_null(6)) {
    row.exit_code = statement.number(6);
  }
  row.succeeded = statement.number(7) != 0;
  row.cached = statement.number(8) != 0;
  row.started_ms = statement.number(9);
  row.ended_ms = statement.number(10);
  return row;
}

}  // namespace

const char* kind_name(CallKind kind) { return kind == CallKind::kModel ? "model" : "tool"; }

const char* kind_name(ArtifactKind kind) {
  return kArtifactKinds.at(static_cast<std::size_t>(kind));
}

Result<ArtifactKind> artifact_kind(std::string_view name) {
  for (std::size_t i = 0; i < kArtifactKinds.size(); ++i) {
    if (name == kArtifactKinds.at(i)) {
      return static_cast<ArtifactKind>(i);
    }
  }
  return Error{Code::kInvalid, 0, "there are no artifacts of the kind '" + std::string(name) + "'",
               "prompt, response, context, input, output or blob"};
}

Status Store::add_call(const StoredCall& call) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT OR REPLACE INTO calls (" CARREL_CALL_COLUMNS
                                  ", key, payload, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                  "?, ?, ?)"));
  const CallRow& row = call.row;
  statement.bind(row.turn).bind(row.position).bind(kind_name(row.kind)).bind(row.name);
  statement.bind(row.arguments).bind(row.result);
  row.exit_code.has_value() ? statement.bind(*row.exit_code) : statement.bind_null();
  statement.bind(std::int64_t{row.succeeded ? 1 : 0}).bind(std::int64_t{row.cached ? 1 : 0});
  statement.bind(row.started_ms).bind(row.ended_ms).bind(call.key);
  call.payload.has_value() ? statement.bind(*call.payload) : statement.bind_null();
  CARREL_TRY(statement.bind(sum_of(call)).step());
  return {};
}

Result<std::optional<StoredCall>> Store::call_with_key(const std::string& key) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT " CARREL_CALL_COLUMNS
                                                  ", payload, sum FROM calls WHERE key = ? AND "
                                                  "payload IS NOT NULL ORDER BY rowid DESC"));
  statement.bind(key);
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return std::optional<StoredCall>();
    }
    StoredCall call{read_call(statement), key, statement.text(11)};
    if (statement.text(12) == sum_of(call)) {
      return std::optional<StoredCall>(std::move(call));
    }
    warn("the record of a call of '" + call.row.name + "' is damaged, and counts as missing");
  }
}

Result<std::vector<CallRow>> Store::calls(const std::string& turn) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT " CARREL_CALL_COLUMNS
                                                  " FROM calls WHERE turn = ? ORDER BY position"));
  statement.bind(turn);
  std::vector<CallRow> rows;
  for (;;) {
    CARREL_ASSIGN(const bool more, statement.step());
    if (!more) {
      return rows;
    }
    rows.push_back(read_call(statement));
  }
}

Status Store::add_artifact(const std::string& turn, const Artifact& artifact) {
  CARREL_ASSIGN(auto statement, database_.prepare("INSERT INTO artifacts (turn, name, kind, value) "
                                                  "VALUES (?, ?, ?, ?)"));
  statement.bind(turn).bind(artifact.name).bind(kind_name(artifact.kind));
  CARREL_TRY(statement.bind(artifact.value).step());
  return {};
}

Status Store::copy_artifacts(const std::string& from, const std::string& to) {
  CARREL_ASSIGN(auto statement,
                database_.prepare("INSERT INTO artifacts (turn, name, kind, value) SELECT ?, name, "
                                  "kind, value FROM artifacts WHERE turn = ?"));
  CARREL_TRY(statement.bind(to).bind(from).step());
  return {};
}

Result<std::optional<Artifact>> Store::artifact(const std::string& turn, const std::string& name) {
  CARREL_ASSIGN(auto statement, database_.prepare("SELECT name, kind, value FROM artifacts WHERE "
                                                  "turn = ? AND name = ?"));
  CARREL_ASSIGN(const bool found, statement.bind(turn).bind(name).step());
  if (!found) {
    return std::optional<Artifact>();
  }
  CARREL_ASSIGN(const ArtifactKind kind, artifact_kind(statement.text(1)));
  return std::optional<Artifact>({statement.text(0), kind, statement.text(2), turn});
}

}  // namespace carrel::journal
