#pragma once

#include <array>
#include <cstddef>

#include "guest/failure.h"
#include "protocol/boot.h"

namespace carrel::guest {

// What is left in the guest's hands after the root was built.
// The tmpfs that only the guest uses, for the shells' pipes; the plan makes it for long-lived
// sandboxes.
inline constexpr std::size_t kGuestSlot = 3;

struct BuiltRoot {
  std::array<int, protocol::kMaxTmpfs> tmpfs{-1, -1, -1, -1};
  int proc_sys_user = -1;  // /proc/sys/user from before /proc/sys became read-only
  int loadavg = -1;        // long-lived: /proc/loadavg from before it was replaced
};

// Builds the sandbox's root from `boot.plan` and moves into it; nothing of the host's tree stays
// reachable. Needs all capabilities in the guest's own user namespace.
bool build_root(const protocol::Boot& boot, BuiltRoot& built, Failure& failure);

}  // namespace carrel::guest
