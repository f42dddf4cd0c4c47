#include "backends/native/launch_child.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace carrel::native {

namespace {

constexpr int kControlFd = 3;
constexpr int kImageFd = 4;

[[noreturn]] void fail(int report, ChildStep step) {
  ChildFailure failure{step, errno};
  // The parent reads it or is gone; there is nothing else to do with it.
  if (::write(report, &failure, sizeof failure) < 0) {
    ::_exit(2);
  }
  ::_exit(1);
}

bool become_inner_root(const ChildPlan& plan) {
  // CRITICAL: a child of the real root still is the real root until it takes an id that its user
  // namespace maps. Raw calls: glibc's would signal threads that this copy does not have.
  if (::syscall(SYS_setresgid, 0, 0, 0) != 0) {
    return false;
  }
  if (plan.drop_groups && ::syscall(SYS_setgroups, 0, nullptr) != 0) {
    return false;
  }
  return ::syscall(SYS_setresuid, 0, 0, 0) == 0;
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  for (int fd : plan.join) {
    if (::write(fd, "0", 1) != 1) {
      fail(plan.report, ChildStep::kJoin);
    }
  }
  // The namespace of control groups is made here and not by clone: its root is the group that the
  // process is in at that moment.
  if (::unshare(CLONE_NEWCGROUP) != 0) {
    fail(plan.report, ChildStep::kJoin);
  }
  char byte = 0;
  if (::read(plan.go, &byte, 1) != 1) {
    ::_exit(3);
  }
  if (!become_inner_root(plan)) {
    fail(plan.report, ChildStep::kIdentity);
  }
  int report = ::fcntl(plan.report, F_DUPFD_CLOEXEC, 5);
  int image = ::fcntl(plan.image, F_DUPFD_CLOEXEC, 5);
  if (report < 0 || image < 0 || ::dup2(plan.control, kControlFd) < 0 ||
      ::dup3(image, kImageFd, O_CLOEXEC) < 0) {
    fail(plan.report, ChildStep::kDescriptors);
  }
  // Standard streams would be a way out of the sandbox: the guest gets /dev/null.
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0) {
    fail(report, ChildStep::kDescriptors);
  }
  // CRITICAL: no descriptor of the host's stays open in the guest, whoever left it inheritable.
  constexpr unsigned kCloseOnExec = 1U << 2;
  if (::syscall(SYS_close_range, kImageFd + 1, ~0U, kCloseOnExec) != 0) {
    fail(report, ChildStep::kDescriptors);
  }
  static char name[] = "carrel-guest";
  char* arguments[] = {name, nullptr};
  char* environment[] = {nullptr};
  ::syscall(SYS_execveat, kImageFd, "", arguments, environment, AT_EMPTY_PATH);
  fail(report, ChildStep::kExecute);
}

}  // namespace

pid_t clone_guest(const CloneRequest& request, const ChildPlan& plan, int* pidfd) {
  struct clone_args arguments {};
  arguments.flags = request.flags | CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<unsigned long long>(pidfd);
  arguments.exit_signal = SIGCHLD;
  if (request.cgroup >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<unsigned long long>(request.cgroup);
  }
  long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) {
    run_child(plan);
  }
  return pid < 0 ? -errno : static_cast<pid_t>(pid);
}

}  // namespace carrel::native
