#pragma once

#include <sys/types.h>

#include <span>

namespace carrel::native {

// What the child does between clone and exec. Everything was computed before; here is no heap, no
// lock and no string.
struct ChildPlan {
  std::span<const int> join;   // cgroup files to which it writes "0"
  int go = -1;                 // a pipe: a byte comes when its ids are mapped; its end means give up
  int control = -1;            // becomes descriptor 3
  int image = -1;              // the guest program
  int report = -1;             // a failed step's number and errno go here
  bool drop_groups = false;    // whether it may, and so must, give up the supplementary groups
};

enum class ChildStep : int { kJoin = 1, kIdentity = 2, kDescriptors = 3, kExecute = 4 };
struct ChildFailure {
  ChildStep step = ChildStep::kJoin;
  int error_number = 0;
};

struct CloneRequest {
  unsigned long long flags = 0;
  int cgroup = -1;  // a v2 directory to be born in, -1: none
};

// clone3 with the namespaces in `request`, and `plan` in the child. Returns the child's pid with
// `pidfd` set, or a negative errno.
pid_t clone_guest(const CloneRequest& request, const ChildPlan& plan, int* pidfd);

}  // namespace carrel::native
