#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "guest/failure.h"
#include "protocol/boot.h"

namespace carrel::guest {

// The tmpfs that only the guest uses, for the shells' pipes; the plan makes it for long-lived
// sandboxes.
inline constexpr std::size_t kGuestSlot = 3;

// What is left in the guest's hands after the root was built.
struct BuiltRoot {
  std::array<int, protocol::kMaxTmpfs> tmpfs{-1, -1, -1, -1};
  std::array<int, 2> further{-1, -1};  // of a furnished room: a second one for what shares a slot
  int proc_sys_user = -1;              // /proc/sys/user from before /proc/sys became read-only
  int vmstat = -1;                     // in a machine: /proc/vmstat from before it was hidden
  int loadavg = -1;                    // long-lived: /proc/loadavg from before it was replaced
};

// Builds the sandbox's root and moves into it. The host's tree is still mounted on top of it then:
// see Helper::join(). Needs CAP_SYS_ADMIN in the guest's own user namespace, as the others do.
// `trees` are the descriptors that came with the plan; none of them is open afterwards.
bool build_root(const protocol::Plan& plan, std::span<int> trees, BuiltRoot& built,
                Failure& failure);

// The same part by part. Builds the shared part and moves into it. CRITICAL: of the host's tree its
// proc stays, because the kernel lets only those mount a proc who see one.
bool build_shared(const protocol::Nursery& nursery, Failure& failure);
// The second part, in a copy of the first: nothing is left of the host's tree. Then the third.
bool build_further(std::string_view part, BuiltRoot& built, Failure& failure);

// Whether "/" has nothing above it.
bool is_top(Failure& failure);

}  // namespace carrel::guest
