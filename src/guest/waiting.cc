#include "guest/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "guest/root.h"
#include "guest/root_builder.h"
#include "guest/settle.h"
#include "guest/spawner_ahead.h"
#include "protocol/frame.h"

namespace carrel::guest {

namespace {

Waited outcome(bool good, Waited how) { return good ? how : Waited::kFailed; }

bool tell_locked(const Guest& guest) {
  unsigned char clocks[4];
  protocol::Writer writer(clocks);
  writer.u32(static_cast<std::uint32_t>(guest.clocks));
  return tell(protocol::FrameType::kReady, clocks);
}

// All the way, for a sandbox that has the lock of this message. What is not known yet comes to bear
// with the first command.
bool lock_ahead(Guest& guest, Helper& helper, RootBuilder& builder, const Received& likely,
                Received& frame, Failure& failure) {
  int clocks = -1;
  if (!builder.move_in()) {
    return false;
  }
  helper.detach_host();
  if (!read_boot(guest, likely, failure) ||
      !settle_in(guest, likely, {&helper, NetworkReady::kEmpty, &clocks}, failure) ||
      !tell_locked(guest)) {
    return false;
  }
  Received rest;
  if (!receive(kControl, protocol::FrameType::kRest, rest) ||
      !receive(kControl, protocol::FrameType::kBoot, frame)) {
    _exit(1);  // nobody wants it
  }
  protocol::Boot boot;
  // CRITICAL: what has another lock is another sandbox, and cannot be made of this one.
  if (rest.count != 0 || frame.count != 0 || !protocol::parse_boot(frame.view(), boot) ||
      !protocol::has_same_lock(guest.boot, boot)) {
    return failure.at("read", "the boot message", -EBADMSG);
  }
  const bool done =
      builder.build_rest(rest.view(), {}) && start_waiting_spawner(guest, boot, clocks, failure);
  guest.boot = boot;
  if (done) {  // a failure may refer to them
    free(likely.payload);
    free(rest.payload);
  }
  return done;
}

}  // namespace

Waited wait_for_sandbox(Guest& guest, Helper& helper, const Received& ahead, Received& frame,
                        Failure& failure) {
  protocol::Plan plan;
  if (!protocol::parse_plan(ahead.view(), plan) || ahead.count != 0) {
    failure.at("read", "the mount plan", -EBADMSG);
    return Waited::kFailed;
  }
  // Whatever goes wrong before it is told more is forgotten: who gets a whole plan begins anew.
  Failure unheard;
  RootBuilder builder(plan.staging, guest.root, unheard);
  const bool built = builder.build_ahead(plan);
  protocol::FrameType type{};
  if (!receive_any(kControl, type, frame)) {
    _exit(1);
  }
  if (type == protocol::FrameType::kBootAhead && built) {
    const Received likely = frame;
    frame = {};
    const bool locked = lock_ahead(guest, helper, builder, likely, frame, unheard);
    failure = unheard;
    return outcome(locked, Waited::kLocked);
  }
  const std::span<int> trees(frame.descriptors, frame.count);
  if (type == protocol::FrameType::kRest && built) {
    const bool done = builder.build_rest(frame.view(), trees);
    failure = unheard;
    return outcome(done, Waited::kBuilt);
  }
  builder.abandon();
  if (type != protocol::FrameType::kPlan || !protocol::parse_plan(frame.view(), plan)) {
    failure.at("read", "the mount plan", -EBADMSG);
    return Waited::kFailed;
  }
  return outcome(build_root(plan, trees, guest.root, failure), Waited::kBuilt);
}

}  // namespace carrel::guest
