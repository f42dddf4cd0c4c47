#include "sandbox/walls.h"

#include <algorithm>

#include "policy/known_flaws.h"
#include "sandbox/command.h"

namespace carrel::sandbox {

std::string Walls::warning(const policy::Spec& spec) const {
  const Result<std::string> builder = describe(spec);
  return builder.ok() ? policy::flaw_warning({.reported = builder.value()}) : std::string();
}

LimitHolders Walls::limit_holders(const policy::Spec& spec) const {
  (void)spec;
  return {};
}

void Walls::settle_origin(int, Origin&) const {}

void Walls::sweep(const std::string&, const std::string&) const {}

policy::Limits limits_behind(const Walls& walls, policy::Limits limits) {
  limits.pids = limits.pids * walls.tasks_for_each() + walls.own_processes();
  limits.memory_bytes += walls.own_memory();
  return limits;
}

policy::Limits limits_while_building(const Walls& walls, policy::Limits limits) {
  const Building building = walls.building();
  limits = limits_behind(walls, limits);
  limits.pids += building.processes;
  limits.memory_bytes = std::max(limits.memory_bytes, building.memory_bytes);
  return limits;
}

Status await_room(GuestStream& stream, int timeout_ms) {
  CARREL_ASSIGN(const GuestFrame frame, stream.wait(timeout_ms));
  if (frame.type == protocol::FrameType::kBootFailed) {
    return to_boot_error(frame.payload);
  }
  return frame.type == protocol::FrameType::kRoomChecked
             ? Status()
             : Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
}

}  // namespace carrel::sandbox
