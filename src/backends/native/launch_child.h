#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

namespace carrel::native {

// What the child does between clone and exec. It shares its parent's memory until then: here is no
// heap, no lock, no string and no errno, and everything it needs was computed before.
struct ChildPlan {
  // An ordinary user's child maps its ids by itself: what it writes to these files. As root its
  // parent does.
  std::string_view uid_map;
  std::string_view gid_map;
  // The guest's stream. When the child may go on, one byte comes here with the descriptor of the
  // guest program; its end means give up. It becomes descriptor 3.
  int control = -1;
  int report = -1;           // a failed step's number and errno go here; it closes with exec
  unsigned id = 0;           // the user and the group that it becomes
  bool changes_ids = false;  // whether its children are to become others
  bool drop_groups = false;  // whether it may, and so must, give up the supplementary groups
  bool real_time = false;    // whether its parent's real-time priority has to be given up
};

// The one id, of a user and of a group, that a sandbox's user namespaces map.
inline constexpr unsigned kInnerId = 1000;

enum class ChildStep : int {
  kPriority = 1,
  kMaps = 5,
  kIdentity = 2,
  kDescriptors = 3,
  kExecute = 4,
};
struct ChildFailure {
  ChildStep step = ChildStep::kPriority;
  int error_number = 0;
};

struct CloneRequest {
  unsigned long long flags = 0;
  int cgroup = -1;  // a v2 directory to be born in, -1: none
};

// The stack of a child that shares its parent's memory.
struct ChildStack {
  static constexpr std::size_t kSize = 16U << 10;
  alignas(64) unsigned char bytes[kSize];
};

struct Cloned {
  pid_t pid = 0;  // or a negative errno
  int pidfd = -1;
  bool in_group = true;  // whether it was born in the group, if there was one
};

// clone3 with the namespaces in `request`, or clone where that is missing, and `plan` in the child,
// which leaves the namespaces of the network and of the control groups to the guest. CRITICAL:
// `plan` and `stack` have to stay until the child has executed the guest or is gone; both close its
// end of `plan.report`.
Cloned clone_guest(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack);

}  // namespace carrel::native
