#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "journal/rows.h"
#include "storage/database.h"
#include "storage/home.h"
#include "storage/workspaces/records.h"

namespace carrel::journal {

// Something that was begun and concerns both stores: a snapshot that is taken for a turn or for the
// start of an execution, or one that is let go of. It is stored before and cleared with the end of
// it; one whose execution nobody is at is made good by settle().
struct Intent {
  std::string id;  // kKeep: the holder of the snapshot
  std::string execution;
  enum class Kind { kKeep, kLetGo } kind = Kind::kKeep;
  std::string snapshot = {};  // kLetGo
};

// A call's record with what is needed to take it from there.
struct StoredCall {
  CallRow row;
  std::string key;
  std::optional<std::string> payload;  // the whole result; nothing: it cannot be taken from here
};

// The rows of journal.db.
class Store {
 public:
  // A file that is damaged is moved aside first, with a warning.
  static Result<std::shared_ptr<Store>> open(const storage::Home& home);

  // Everything that `work` stores, or nothing. It is on disk then.
  Status in_transaction(const std::function<Status()>& work);
  // Runs a write that need not be on disk: it is, as soon as the next transaction is.
  Status in_passing(const std::function<Status()>& work);

  Result<std::string> store_name();

  Status add_execution(const ExecutionRow& row);
  Status update_execution(const ExecutionRow& row);
  Result<std::optional<ExecutionRow>> execution(const std::string& id);
  Result<std::vector<ExecutionRow>> executions_like(const std::string& beginning);
  Result<std::vector<ExecutionRow>> executions(const std::string& flow, std::size_t most);
  Status remove_execution(const std::string& id);

  Status add_turn(const TurnRow& row, const std::string& flow);
  // With all of its columns, which are signed.
  Status end_turn(const TurnRow& row);
  Result<std::optional<TurnRow>> turn(const std::string& id);
  Result<std::vector<TurnRow>> turns_of(const std::string& execution, std::int64_t run);
  Result<std::vector<TurnRow>> newest_turns(std::size_t most);
  // Finished ones, the newest first; those whose sum is wrong are left out, with a warning.
  Result<std::vector<TurnRow>> turns_with_key(const std::string& key);
  // Of that execution, also ones that it took from the record.
  Result<std::vector<TurnRow>> turns_with_key(const std::string& key, const std::string& execution);
  // The newest one with that key that failed and left something to go on from.
  Result<std::optional<TurnRow>> stopped_turn(const std::string& key, const std::string& execution);
  // The newest finished one of that flow and name whose number is below that of `before`.
  Result<std::optional<TurnRow>> turn_before(const std::string& flow, const TurnRow& before);
  // Whether any execution or turn refers to it.
  Result<bool> refers_to(const std::string& snapshot);
  Result<std::vector<std::string>> snapshots_of(const std::string& execution);

  Status add_call(const StoredCall& call);
  Result<std::optional<StoredCall>> call_with_key(const std::string& key);
  Result<std::vector<CallRow>> calls(const std::string& turn);

  Status add_artifact(const std::string& turn, const Artifact& artifact);
  Status copy_artifacts(const std::string& from, const std::string& to);
  Result<std::optional<Artifact>> artifact(const std::string& turn, const std::string& name);

  Status add_wait(const WaitRow& row);
  Status end_wait(const WaitRow& row);
  Result<std::optional<WaitRow>> wait(const std::string& execution, const std::string& name);
  Result<std::vector<WaitRow>> open_waits();

  Status add_intent(const Intent& intent);
  Status clear_intent(const std::string& id);
  Result<std::vector<Intent>> intents();

  // Where snapshots are.
  Result<storage::WorkspaceRecords*> snapshots(const storage::Home& home);

  void warn(std::string sentence) { warnings_.push_back(std::move(sentence)); }
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  explicit Store(storage::Database database) : database_(std::move(database)) {}
  Result<std::vector<TurnRow>> list_turns(
      const char* sql, const std::function<void(storage::Database::Statement&)>& bind);
  Result<std::vector<ExecutionRow>> list_executions(
      const char* sql, const std::function<void(storage::Database::Statement&)>& bind);

  storage::Database database_;
  std::optional<storage::WorkspaceRecords> snapshots_;
  std::vector<std::string> warnings_;
};

// "running", "finished", "cached" or "failed".
const char* state_name(TurnState state);
const char* kind_name(CallKind kind);
const char* kind_name(ArtifactKind kind);
Result<ArtifactKind> artifact_kind(std::string_view name);

}  // namespace carrel::journal
