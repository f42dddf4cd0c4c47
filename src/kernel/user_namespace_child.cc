#include "kernel/user_namespace_child.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kernel/raw_call_child.h"

namespace carrel::kernel {

namespace {

int wait_for_end(void* memory) {
  raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  // Its parent may have gone before that.
  while (raw_call(SYS_getppid, 0) == static_cast<const WaitingChild*>(memory)->parent) {
    const long pause[2] = {1, 0};  // struct timespec
    raw_call(SYS_nanosleep, &pause[0], 0);
  }
  return 0;
}

}  // namespace

pid_t clone_waiting_child(WaitingChild& memory) {
  memory.parent = ::getpid();
  const pid_t pid = ::clone(wait_for_end, &memory.stack[sizeof memory.stack],
                            CLONE_NEWUSER | CLONE_VM | SIGCHLD, &memory);
  return pid < 0 ? -errno : pid;
}

}  // namespace carrel::kernel
