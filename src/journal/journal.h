#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "journal/rows.h"
#include "storage/database.h"
#include "storage/home.h"

namespace carrel::journal {

class Store;
struct Intent;

// CARREL_HOME/journal.db: what flows did, turn by turn. Everything that a call stores is on disk
// when it returns. One object for one thread; any number of processes.
//
// A record whose sum is wrong, or whose files are gone, is as if it were not there, with a warning.
// A database that cannot be read is moved aside as journal.db.damaged-TIME, and a new one begun.
class Journal {
 public:
  static Result<Journal> open(const storage::Home& home);

  // The random name of this store, a part of every key.
  [[nodiscard]] const std::string& store() const { return store_; }
  [[nodiscard]] const storage::Home& home() const { return *home_; }
  // Its rows, for the rest of this folder.
  [[nodiscard]] Store& rows() { return *rows_; }
  // What was wrong with records since the last call, as sentences.
  std::vector<std::string> take_warnings();

  // An execution by its id, or by the beginning of its id if no other begins so; kNotFound.
  Result<ExecutionRow> find_execution(const std::string& named);
  // The newest first.
  Result<std::vector<ExecutionRow>> executions(const std::string& flow, std::size_t most);
  // Whether some process is at it now.
  bool is_running(const std::string& execution);
  // The turns of a run of an execution (0: its last one), in order, the last attempt of each.
  Result<std::vector<TurnRow>> turns(const std::string& execution, std::int64_t run = 0);
  // Of all flows, the newest first. By index: it costs the same in a small and in a large journal.
  Result<std::vector<TurnRow>> newest_turns(std::size_t most);
  // A turn of the last run by its position ("2"), its name, its id, or the beginning of its id.
  // kNotFound, and kInvalid for what could be several.
  Result<TurnRow> find_turn(const std::string& execution, const std::string& selector);
  // All attempts at a position of a run, in order.
  Result<std::vector<TurnRow>> attempts(const std::string& execution, std::int64_t run,
                                        std::int64_t position);
  // The calls of a turn; of a cached one, those of the turn that did the work.
  Result<std::vector<CallRow>> calls(const TurnRow& turn);
  // What was saved under that name in the last run: NAME, or TURN/NAME. kNotFound, and kInvalid
  // where several turns saved one of that name.
  Result<Artifact> load(const std::string& execution, const std::string& name);

  // Waits, see waits.h. Open ones of all executions, the oldest first.
  Result<std::vector<WaitRow>> open_waits();
  Result<WaitRow> find_wait(const std::string& execution, const std::string& name);
  // kInvalid for an answer that is no JSON or not what the schema says; kConflict for a wait that
  // has one already, or was aborted.
  Status answer(const std::string& execution, const std::string& name, const std::string& json);
  Status abort_wait(const std::string& execution, const std::string& name);

  // Removes an execution with its turns, and lets go of snapshots that no other refers to.
  // kConflict while it runs.
  Status remove(const std::string& execution);
  // The workspaces that were made for executions which are not there any more, and to which no
  // other refers: those of `gone`, and of others if nobody has begun with them just now.
  Result<std::vector<std::string>> left_workspaces(const std::vector<std::string>& gone);
  // Makes good what killed runs left: intents without an owner, removals that were begun.
  Status settle();

 private:
  friend class Run;
  friend class Turn;
  explicit Journal(const storage::Home& home) : home_(&home) {}
  Status settle_own(const std::string& execution);
  Status settle_intent(const Intent& intent);

  const storage::Home* home_;
  std::string store_;
  std::shared_ptr<Store> rows_;
};

}  // namespace carrel::journal
