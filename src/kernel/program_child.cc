#include "kernel/program_child.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

#include "kernel/descriptors_child.h"
#include "kernel/raw_call_child.h"

namespace carrel::kernel {

namespace {

constexpr int kFirstGiven = 3;

// CRITICAL: what the sandbox inherits with a real-time priority would starve the host.
long be_ordinary() {
  const sched_param ordinary{};
  const long result = raw_call(SYS_sched_setscheduler, 0, SCHED_OTHER, &ordinary);
  constexpr long kMaskSize = 8;
  constexpr int kLastSignal = 64;
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    const long standard[8] = {};  // the kernel's struct begins with the handler
    raw_call(SYS_rt_sigaction, signal, &standard[0], 0, kMaskSize);
  }
  const long none = 0;
  constexpr int kSetMask = 2;
  raw_call(SYS_rt_sigprocmask, kSetMask, &none, 0, kMaskSize);
  return result;
}

// What its maker has open is its maker's: a lock that is held here as well would tell others that
// he lives.
long close_foreign(const ProgramPlan& plan) {
  unsigned first = kFirstGiven;
  long result = 0;
  for (const int kept : plan.kept) {
    const auto number = static_cast<unsigned>(kept);
    if (number > first && result >= 0) {
      result = close_descriptors(first, number - 1);
    }
    first = number >= first ? number + 1 : first;
  }
  return result < 0 ? result : close_descriptors(first, ~0U);
}

long write_zero(long file) {
  if (file < 0) {
    return file;
  }
  const long written = raw_call(SYS_write, file, "0", 1);
  return written < 0 ? written : 0;
}

long join_groups(const ProgramPlan& plan) {
  long result = 0;
  if (plan.group >= 0) {
    const long file =
        raw_call(SYS_openat, plan.group, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    result = write_zero(file);
  }
  for (const int file : plan.join) {
    result = result != 0 ? result : write_zero(file);
  }
  return result;
}

long place(const ProgramPlan::Mount& mount) {
  constexpr long kMode = 0755;
  const long made = mount.file ? raw_call(SYS_mknodat, AT_FDCWD, mount.place, S_IFREG | 0444, 0)
                               : raw_call(SYS_mkdirat, AT_FDCWD, mount.place, kMode);
  return made != 0 ? made
                   : raw_call(SYS_move_mount, mount.mount, "", AT_FDCWD, mount.place,
                              MOVE_MOUNT_F_EMPTY_PATH);
}

long place_mounts(const ProgramPlan& plan) {
  if (plan.mounts.empty()) {
    return 0;
  }
  long result = raw_call(SYS_unshare, CLONE_NEWNS);
  // CRITICAL: nothing that is mounted here may appear outside.
  result = result != 0 ? result : raw_call(SYS_mount, 0, "/", 0, MS_REC | MS_PRIVATE, 0);
  result = result != 0 ? result
                       : raw_call(SYS_mount, "tmpfs", plan.staging, "tmpfs",
                                  MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=0755");
  for (const ProgramPlan::Mount& mount : plan.mounts) {
    result = result != 0 ? result : place(mount);
  }
  return result;
}

long take_identity(const ProgramPlan& plan) {
  if (!plan.changes_id) {
    return 0;
  }
  long result = raw_call(SYS_setgroups, plan.further_groups, &plan.further_group);
  result = result != 0 ? result : raw_call(SYS_setresgid, plan.id, plan.id, plan.id);
  return result != 0 ? result : raw_call(SYS_setresuid, plan.id, plan.id, plan.id);
}

long lay_out_descriptors(const ProgramPlan& plan, int& report) {
  const int end = kFirstGiven + static_cast<int>(plan.descriptors.size());
  long result = 0;
  // Out of the way of the fixed numbers first.
  const auto move_away = [&](int fd) {
    const long moved = result < 0 ? result : raw_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, end);
    result = moved < 0 ? moved : result;
    return static_cast<int>(moved);
  };
  const auto put = [&](int fd, int number) {
    const long put_there = result < 0 ? result : raw_call(SYS_dup3, fd, number, 0);
    result = put_there < 0 ? put_there : result;
  };
  report = move_away(report);
  const int output = plan.output < 0 ? -1 : move_away(plan.output);
  const int errors = plan.errors < 0 ? -1 : move_away(plan.errors);
  for (int& given : plan.descriptors) {
    given = move_away(given);
  }
  const long opened = raw_call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    return opened;
  }
  const int null = move_away(static_cast<int>(opened));
  put(null, 0);
  put(output < 0 ? null : output, 1);
  put(errors < 0 ? null : errors, 2);
  int number = kFirstGiven;
  for (const int given : plan.descriptors) {
    put(given, number++);
  }
  // CRITICAL: no other descriptor of the host's stays open, whoever left it inheritable.
  return result < 0 ? result : close_on_exec(static_cast<unsigned>(end), ~0U);
}

[[noreturn]] void fail(int report, ProgramStep step, long result) {
  const ProgramFailure failure{step, static_cast<int>(-result)};
  // The parent reads it or is gone; there is nothing else to do with it.
  raw_call(SYS_write, report, &failure, sizeof failure);
  for (;;) {
    raw_call(SYS_exit_group, 1);
  }
}

}  // namespace

void become_program(const ProgramPlan& plan) {
  int report = plan.report;
  const auto check = [&](ProgramStep step, long result) {
    if (result < 0) {
      fail(report, step, result);
    }
  };
  check(ProgramStep::kForeign, close_foreign(plan));
  check(ProgramStep::kPriority, be_ordinary());
  check(ProgramStep::kGroups, join_groups(plan));
  check(ProgramStep::kMounts, place_mounts(plan));
  check(ProgramStep::kIdentity, take_identity(plan));
  check(ProgramStep::kDescriptors, lay_out_descriptors(plan, report));
  constexpr const char* kEnvironment[] = {nullptr};
  check(ProgramStep::kExecute, raw_call(SYS_execve, plan.path, plan.arguments, &kEnvironment[0]));
  fail(report, ProgramStep::kExecute, -ENOEXEC);
}

}  // namespace carrel::kernel
