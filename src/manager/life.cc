#include "manager/life.h"

#include <optional>
#include <utility>

#include "backends/native/pause.h"

namespace carrel::manager {

Life life_of(const storage::Home& home, const storage::SandboxRow& row) {
  Life life{row.state, "running", row.reason};
  if (row.state == "ended" || row.state == "stopped") {
    life.desired = row.state;
    return life;
  }
  if (const std::string ending = storage::noted_end(home, row.id); !ending.empty()) {
    life.desired = storage::noted_stop(home, row.id).has_value() ? "stopped" : "ended";
    life.reason = ending;
    return life;
  }
  if (const auto pause = storage::noted_pause(home, row.id); pause.has_value()) {
    life.state = "paused";
    life.desired = "paused";
    life.reason = pause->reason;
  }
  return life;
}

Result<storage::BoxUse> begin_use(const storage::Home& home, const storage::BoxRecord& record) {
  // First the use, then the look: who pauses it for being idle sees the one or is seen.
  CARREL_ASSIGN(storage::BoxUse use, storage::BoxUse::begin(home, record.id));
  const std::optional<storage::Pause> pause = storage::noted_pause(home, record.id);
  if (!pause.has_value()) {
    return use;
  }
  if (pause->until == storage::Pause::Until::kResumed) {
    return Error{Code::kConflict, 0, "sandbox " + record.id + " is paused: " + pause->reason,
                 "'carrel resume' lets it go on"};
  }
  CARREL_TRY(native::resume_sandbox(home, record));
  return use;
}

Result<storage::SandboxRow> find_row(const storage::Home& home, const std::string& named) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  auto record = storage::find_box(home, named);
  if (!record.ok() && record.error().code == Code::kInvalid) {
    return record.error();
  }
  CARREL_ASSIGN(auto rows, state.list(storage::State::Which::kAll));
  storage::SandboxRow* found = nullptr;
  for (storage::SandboxRow& row : rows) {
    const bool meant = record.ok()
                           ? row.id == record.value().id
                           : row.id == named || (!storage::is_id(named) && row.name == named) ||
                                 (named.size() >= 4 && row.id.starts_with(named));
    // One that is there comes before one that was.
    if (meant && (found == nullptr || found->state == "ended" || row.state != "ended")) {
      found = &row;
    }
  }
  if (found == nullptr) {
    return Error{Code::kNotFound, 0, "Sandbox " + named + " not found",
                 "'carrel ls --all' shows the ones there are"};
  }
  return std::move(*found);
}

}  // namespace carrel::manager
