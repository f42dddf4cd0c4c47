#include "storage/images/builder_child.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/descriptors_child.h"

namespace carrel::storage {

namespace {

constexpr int kFailed = 127;

// CRITICAL: a failure ends the process. Without its own ids the builder would be the host's root.
void enter_user_namespace(int handshake) {
  char byte = 0;
  if (::unshare(CLONE_NEWUSER) != 0 || ::write(handshake, &byte, 1) != 1 ||
      ::read(handshake, &byte, 1) != 1) {
    ::_exit(kFailed);
  }
  // By number: a library would ask its other threads.
  if (::syscall(SYS_setgroups, 0, nullptr) != 0 || ::syscall(SYS_setresgid, 0, 0, 0) != 0 ||
      ::syscall(SYS_setresuid, 0, 0, 0) != 0) {
    ::_exit(kFailed);
  }
}

}  // namespace

void become_builder(const BuilderPlan& plan) {
  if (plan.handshake >= 0) {
    enter_user_namespace(plan.handshake);
  }
  // Ends, and cleans up, with whoever asked for the image. A change of ids takes this away, so it
  // comes after them.
  (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::dup2(plan.input, 0) < 0 || ::dup2(plan.output, 1) < 0 || ::dup2(plan.errors, 2) < 0 ||
      kernel::close_descriptors(3, ~0U) < 0) {
    ::_exit(kFailed);
  }
  ::execve(plan.program, plan.arguments, plan.environment);
  ::_exit(kFailed);
}

}  // namespace carrel::storage
