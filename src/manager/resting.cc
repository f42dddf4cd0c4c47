#include <utility>

#include "backends/native/pause.h"
#include "manager/manager.h"
#include "manager/stopping.h"

// Sandboxes put to rest, and woken.
namespace carrel::manager {

Result<storage::BoxRecord> Manager::live_record(const Caller& caller, const std::string& id,
                                                Rest rest) {
  if (!storage::is_id(id) || !belongs(caller, id)) {
    return storage::no_such_box(id);
  }
  auto record = storage::read_record(home_, id);
  if (record.ok()) {
    return record;
  }
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  bool making = row.state == "creating";
  if (row.state == "running") {
    const std::lock_guard lock(mutex_);
    making = making_.contains(id);
  }
  if (making) {
    return Error{Code::kConflict, 0, "sandbox " + id + " is being started",
                 "ask again in a moment"};
  }
  if (row.state != "stopped") {
    return explain_end(id, Error{Code::kGone, 0, "sandbox " + id + " has ended", {}});
  }
  if (rest == Rest::kLeft || row.wake == storage::Wake::kWhenTold) {
    return is_stopped(row);
  }
  CARREL_TRY(start(caller, id));
  return storage::read_record(home_, id);
}

bool Manager::wakes_by_use(const std::string& id) {
  auto row = row_of(id);
  return row.ok() && row.value().has_value() && row.value()->state == "stopped" &&
         row.value()->wake == storage::Wake::kWhenUsed;
}

Status Manager::pause(const Caller& caller, const std::string& id) {
  CARREL_ASSIGN(const storage::BoxRecord record, live_record(caller, id, Rest::kLeft));
  Status paused = native::pause_sandbox(home_, record, {"somebody paused it"});
  return paused.ok() ? paused : Status(explain_end(id, std::move(paused.error())));
}

Status Manager::resume(const Caller& caller, const std::string& id) {
  CARREL_ASSIGN(const storage::BoxRecord record, live_record(caller, id, Rest::kLeft));
  Status resumed = native::resume_sandbox(home_, record);
  return resumed.ok() ? resumed : Status(explain_end(id, std::move(resumed.error())));
}

Status Manager::stop(const Caller& caller, const std::string& id, int grace_ms) {
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  if (row.state == "stopped") {
    // From now on it waits to be told, whoever put it to rest.
    const std::lock_guard lock(database_mutex_);
    return state_.set_stopped(id, "somebody stopped it", storage::Wake::kWhenTold);
  }
  CARREL_ASSIGN(const storage::BoxRecord record, live_record(caller, id, Rest::kLeft));
  (void)kept_stream(id);
  return stop_sandbox(home_, record, grace_ms, "somebody stopped it", storage::Wake::kWhenTold);
}

}  // namespace carrel::manager
