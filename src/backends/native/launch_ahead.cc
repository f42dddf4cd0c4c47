// What is told a guest that has been waiting for its sandbox, or has just been made: its plan, or
// what that has beyond the plan it was told ahead.
#include "backends/native/boot_message.h"
#include "backends/native/launch.h"
#include "backends/native/mount_plan.h"
#include "protocol/boot.h"

namespace carrel::native {

namespace {

Error locked_otherwise() {
  return Error{Code::kUnavailable, 0, "the warm sandbox has locked itself in as another one", {}};
}

}  // namespace

Status Launch::send_texts() {
  const auto rest = rest_after(ahead_->plan, *mounts_);
  if (!rest.has_value() || !request_.trees.empty()) {
    return locked_otherwise();
  }
  protocol::PlanReader steps(*rest);
  protocol::MountStep step;
  while (steps.next(step)) {
    if (step.kind != protocol::StepKind::kReplace) {
      return locked_otherwise();
    }
  }
  return made_->send(protocol::FrameType::kRest, *rest, {});
}

// CRITICAL: what it has done with the other message is not done again. It compares them, too.
Status Launch::check_lock(const std::string& boot) const {
  protocol::Boot ahead;
  protocol::Boot wanted;
  return protocol::parse_boot(ahead_->boot, ahead) && protocol::parse_boot(boot, wanted) &&
                 protocol::has_same_lock(ahead, wanted)
             ? Status()
             : Status(locked_otherwise());
}

Status Launch::send_plan() {
  CARREL_TRY(prepare_trees());
  CARREL_TRY(plan());
  if (is_locked()) {
    return send_texts();
  }
  // One that is found by its path may lie beneath what was built; and the order of mounts would
  // tell that it came later.
  if (ahead_.has_value() && request_.trees.empty()) {
    if (const auto rest = rest_after(ahead_->plan, *mounts_); rest.has_value()) {
      return made_->send(protocol::FrameType::kRest, *rest, descriptors_of_trees());
    }
  }
  return made_->send(protocol::FrameType::kPlan, encode_plan(*mounts_), descriptors_of_trees());
}

}  // namespace carrel::native
