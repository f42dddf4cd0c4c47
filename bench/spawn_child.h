#pragma once

#include <sys/types.h>

namespace carrel::bench {

// What a new process needs to know between clone and exec; it shares the parent's memory.
struct ChildPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int input = -1;
  int output = -1;
  int error = -1;
  int join = -1;  // a control group's tasks or cgroup.procs file; -1: stay
  bool switch_user = false;
  bool traced = false;  // by the parent, from exec on
  uid_t uid = 0;
  gid_t gid = 0;
  int failed = 0;  // the errno, when there is no new program
};

// The process's main function for clone(2) with CLONE_VM and CLONE_VFORK; `plan` is a ChildPlan.
int child_main(void* plan);

}  // namespace carrel::bench
