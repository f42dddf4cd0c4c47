#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "storage/database.h"
#include "storage/home.h"

namespace carrel::storage {

// When a sandbox that is stopped is started again.
enum class Wake { kWhenTold, kWhenUsed };

// What is known of a long-lived sandbox, in the state database. It stays for a while after the
// sandbox has ended, with the reason.
struct SandboxRow {
  std::string id;
  std::string name;         // empty: none was given
  std::string state;        // "creating", "running", "stopped" or "ended"
  std::string spec;         // policy::spec_to_json
  std::string enforcement;  // JSON
  std::int64_t created_ms = 0;
  std::int64_t ended_ms = 0;  // or stopped
  std::string reason;         // why it ended or stopped, in words
  Wake wake = Wake::kWhenTold;
};

class State {
 public:
  static Result<State> open(const Home& home);
  // In a database that is open already.
  static Result<State> open(Database database);

  // kConflict when the name is taken by a sandbox that has not ended. Everybody sees it when this
  // returns; kUnsynced: it may be lost when the host goes down.
  Status add(const SandboxRow& row, Lasting lasting = Lasting::kSynced);
  // Everybody sees it when this returns. That it runs is not true any more after the host has gone
  // down, and so need not be on disk.
  Status set_running(const std::string& id, const std::string& enforcement);
  Status set_ended(const std::string& id, const std::string& reason);
  // It can be started again.
  Status set_stopped(const std::string& id, const std::string& reason, Wake wake);
  // It is on its way again. kConflict for one that is not stopped.
  Status start_again(const std::string& id, const std::string& spec);
  Status forget(const std::string& id);
  // Drops ended sandboxes beyond the newest `keep`.
  Status forget_old(int keep);

  Result<std::optional<SandboxRow>> find(const std::string& id);
  enum class Which { kLive, kAll };
  Result<std::vector<SandboxRow>> list(Which which);

 private:
  explicit State(Database database) : database_(std::move(database)) {}
  Database database_;
};

std::int64_t wall_clock_ms();

}  // namespace carrel::storage
