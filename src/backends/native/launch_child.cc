#include "backends/native/launch_child.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <span>

#include "kernel/descriptors_child.h"
#include "kernel/raw_call_child.h"

namespace carrel::native {

namespace {

using kernel::raw_call;
using kernel::word;

constexpr int kControlFd = 3;
constexpr int kImageFd = 4;

// clone3 into another stack: only the parent comes back from it.
long clone_onto(struct clone_args& arguments, void (*run)(const ChildPlan*),
                const ChildPlan* plan) {
#if defined(__x86_64__)
  register void (*r8)(const ChildPlan*) asm("r8") = run;
  register const ChildPlan* r9 asm("r9") = plan;
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r9, %%rdi\n\t"
      "call *%%r8\n\t"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(&arguments), "S"(sizeof arguments), "r"(r8), "r"(r9)
      : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = SYS_clone3;
  register long x0 asm("x0") = word(&arguments);
  register long x1 asm("x1") = word(sizeof arguments);
  register void (*x9)(const ChildPlan*) asm("x9") = run;
  register const ChildPlan* x10 asm("x10") = plan;
  asm volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x10\n\t"
      "blr x9\n\t"
      "brk #1\n"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x9), "r"(x10)
      : "memory", "x30");
  return x0;
#endif
}

[[noreturn]] void leave(int status) {
  for (;;) {
    raw_call(SYS_exit_group, status);
  }
}

[[noreturn]] void fail(int report, ChildStep step, long result) {
  ChildFailure failure{step, static_cast<int>(-result)};
  // The parent reads it or is gone; there is nothing else to do with it.
  raw_call(SYS_write, report, &failure, sizeof failure);
  leave(1);
}

long write_to(const char* path, std::string_view text) {
  long fd = raw_call(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return fd;
  }
  long written = raw_call(SYS_write, fd, text.data(), text.size());
  raw_call(SYS_close, fd);
  return written < 0 ? written : 0;
}

// The kernel lets an ordinary user map one id, its own, and only without a say over groups.
long map_ids(const ChildPlan& plan) {
  long result = write_to("/proc/self/setgroups", "deny");
  result = result != 0 ? result : write_to("/proc/self/gid_map", plan.gid_map);
  return result != 0 ? result : write_to("/proc/self/uid_map", plan.uid_map);
}

// Waits for the parent, and returns the descriptor of the guest program.
int wait_for_image(int control) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) unsigned char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  constexpr long kInterrupted = -4;
  long got;
  do {
    got = raw_call(SYS_recvmsg, control, &message, MSG_CMSG_CLOEXEC);
  } while (got == kInterrupted);
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    leave(3);
  }
  int image = -1;
  __builtin_memcpy(&image, CMSG_DATA(header), sizeof image);
  return image;
}

// The guest is not root in its namespace, so it keeps capabilities across exec only as ambient
// ones. These are what it builds the room with; it gives them up when that is done.
long keep_capabilities(const ChildPlan& plan) {
  constexpr int kAll[] = {CAP_SYS_ADMIN,    CAP_NET_ADMIN, CAP_SETPCAP,
                          CAP_DAC_OVERRIDE, CAP_SETUID,    CAP_SETGID};
  constexpr std::size_t kCount = sizeof kAll / sizeof kAll[0];
  const std::span<const int> kept(&kAll[0], plan.changes_ids ? kCount : kCount - 2);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  for (int capability : kept) {
    __user_cap_data_struct& set = sets[capability / 32];
    set.effective = set.permitted = set.inheritable |= 1U << (capability % 32);
  }
  long result = raw_call(SYS_capset, &header, &sets[0]);
  for (int capability : kept) {
    result = result != 0 ? result
                         : raw_call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability);
  }
  return result;
}

long take_identity(const ChildPlan& plan) {
  // CRITICAL: a child of the real root still is the real root until it takes an id that its user
  // namespace maps.
  long result = raw_call(SYS_setresgid, plan.id, plan.id, plan.id);
  if (result == 0 && plan.drop_groups) {
    result = raw_call(SYS_setgroups, 0, 0);
  }
  if (result == 0) {
    result = raw_call(SYS_setresuid, plan.id, plan.id, plan.id);
  }
  return result != 0 ? result : keep_capabilities(plan);
}

// CRITICAL: what the parent holds has to end with the parent, and this process has a copy of it
// all: of the parent's end of the stream, whose closing tells it to give up, and of the locks by
// which others know that the parent lives.
long close_others(unsigned one, unsigned other) {
  const unsigned first = one < other ? one : other;
  const unsigned second = one < other ? other : one;
  constexpr unsigned kFirst = 3;
  long result = first > kFirst ? kernel::close_descriptors(kFirst, first - 1) : 0;
  if (result == 0 && second > first + 1) {
    result = kernel::close_descriptors(first + 1, second - 1);
  }
  return result != 0 ? result : kernel::close_descriptors(second + 1, ~0U);
}

// What CLONE_CLEAR_SIGHAND does: a handler is its parent's, and would run in its parent's memory.
void clear_handlers() {
  constexpr int kLastSignal = 64;
  constexpr long kMaskSize = 8;
  for (int signal = 1; signal <= kLastSignal; ++signal) {
    long action[8] = {};  // the kernel's struct begins with the handler
    raw_call(SYS_rt_sigaction, signal, 0, &action[0], kMaskSize);
    if (action[0] != word(SIG_DFL) && action[0] != word(SIG_IGN)) {
      const long standard[8] = {};
      raw_call(SYS_rt_sigaction, signal, &standard[0], 0, kMaskSize);
    }
  }
}

void run_child(const ChildPlan* given) {
  const ChildPlan& plan = *given;
  if (long result =
          close_others(static_cast<unsigned>(plan.control), static_cast<unsigned>(plan.report));
      result != 0) {
    fail(plan.report, ChildStep::kDescriptors, result);
  }
  // CRITICAL: a workload with a real-time priority would starve the host.
  if (plan.real_time) {
    const sched_param ordinary{};
    if (long result = raw_call(SYS_sched_setscheduler, 0, SCHED_OTHER, &ordinary); result != 0) {
      fail(plan.report, ChildStep::kPriority, result);
    }
  }
  if (!plan.uid_map.empty()) {
    if (long result = map_ids(plan); result != 0) {
      fail(plan.report, ChildStep::kMaps, result);
    }
  }
  int passed = wait_for_image(plan.control);
  if (long result = take_identity(plan); result != 0) {
    fail(plan.report, ChildStep::kIdentity, result);
  }
  auto check = [&](long result) {
    if (result < 0) {
      fail(plan.report, ChildStep::kDescriptors, result);
    }
    return static_cast<int>(result);
  };
  constexpr int kFirstFree = kImageFd + 1;
  // Out of the way of the fixed numbers first.
  int report = check(raw_call(SYS_fcntl, plan.report, F_DUPFD_CLOEXEC, kFirstFree));
  int image = check(raw_call(SYS_fcntl, passed, F_DUPFD_CLOEXEC, kFirstFree));
  int control = check(raw_call(SYS_fcntl, plan.control, F_DUPFD_CLOEXEC, kFirstFree));
  // Standard streams would be a way out of the sandbox: the guest gets /dev/null.
  int opened = check(raw_call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC));
  int null = check(raw_call(SYS_fcntl, opened, F_DUPFD_CLOEXEC, kFirstFree));
  for (int stream : {0, 1, 2}) {
    check(raw_call(SYS_dup3, null, stream, 0));
  }
  check(raw_call(SYS_dup3, control, kControlFd, 0));
  check(raw_call(SYS_dup3, image, kImageFd, O_CLOEXEC));
  // CRITICAL: no descriptor of the host's stays open in the guest, whoever left it inheritable.
  check(kernel::close_on_exec(kFirstFree, ~0U));
  // CRITICAL: the network is still the host's; the guest makes its own before it runs anything.
  const char* arguments[] = {"carrel-guest", nullptr};
  const char* environment[] = {nullptr};
  long result = raw_call(SYS_execveat, kImageFd, "", &arguments[0], &environment[0], AT_EMPTY_PATH);
  if (result == -ENOSYS) {
    result = raw_call(SYS_execve, "/proc/self/fd/4", &arguments[0], &environment[0]);
  }
  fail(report, ChildStep::kExecute, result);
}

int run_cleared(void* plan) {
  clear_handlers();
  run_child(static_cast<const ChildPlan*>(plan));
  return 1;
}

// By the older call. No signal arrives in the child before its handlers are cleared; the guest
// begins by blocking them all, too.
pid_t clone_plainly(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack,
                    int* pidfd) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const int flags =
      static_cast<int>(request.flags & ~CLONE_CLEAR_SIGHAND) | CLONE_PIDFD | CLONE_VM | SIGCHLD;
  const pid_t pid = ::clone(run_cleared, &stack.bytes[sizeof stack.bytes], flags,
                            const_cast<ChildPlan*>(&plan), pidfd);
  const int reason = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return pid < 0 ? -reason : pid;
}

}  // namespace

Cloned clone_guest(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack) {
  Cloned cloned;
  struct clone_args arguments{};
  arguments.flags = request.flags | CLONE_PIDFD | CLONE_VM;
  arguments.pidfd = reinterpret_cast<unsigned long long>(&cloned.pidfd);
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<unsigned long long>(&stack.bytes[0]);
  arguments.stack_size = sizeof stack.bytes;
  if (request.cgroup >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<unsigned long long>(request.cgroup);
  }
  cloned.pid = static_cast<pid_t>(clone_onto(arguments, run_child, &plan));
  // There is no such call before Linux 5.3, and later ones do not know all of its flags.
  if (cloned.pid == -ENOSYS || cloned.pid == -EINVAL || cloned.pid == -E2BIG) {
    cloned.pid = clone_plainly(request, plan, stack, &cloned.pidfd);
    cloned.in_group = false;
  }
  return cloned;
}

}  // namespace carrel::native
