#include "bench/spawn_child.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace carrel::bench {

namespace {

// Descriptors below 3 are never the plan's own: the parent has its three standard ones open.
bool place_descriptors(const ChildPlan& plan) {
  return ::dup2(plan.input, 0) >= 0 && ::dup2(plan.output, 1) >= 0 && ::dup2(plan.error, 2) >= 0;
}

// By system call: glibc's own functions would change every thread of the parent.
bool become_user(const ChildPlan& plan) {
  return ::syscall(SYS_setgroups, 0, nullptr) == 0 &&
         ::syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) == 0 &&
         ::syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) == 0;
}

bool prepare(const ChildPlan& plan) {
  if (plan.join >= 0 && ::write(plan.join, "0", 1) != 1) {
    return false;
  }
  if (!place_descriptors(plan) || (plan.switch_user && !become_user(plan))) {
    return false;
  }
  return !plan.traced || ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0;
}

}  // namespace

int child_main(void* plan) {
  ChildPlan& mine = *static_cast<ChildPlan*>(plan);
  if (prepare(mine)) {
    ::execve(mine.program, mine.arguments, mine.environment);
  }
  mine.failed = errno;
  ::_exit(127);
}

}  // namespace carrel::bench
