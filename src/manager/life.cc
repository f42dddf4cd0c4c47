#include "manager/life.h"

#include <optional>
#include <utility>

#include "backends/native/pause.h"

namespace carrel::manager {

Life life_of(const storage::Home& home, const storage::SandboxRow& row) {
  Life life{row.state, "running", row.reason};
  if (row.state == "ended") {
    life.desired = "ended";
    return life;
  }
  if (const std::string ending = storage::noted_end(home, row.id); !ending.empty()) {
    life.desired = "ended";
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

}  // namespace carrel::manager
