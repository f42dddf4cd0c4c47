#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "verify/probes/probe.h"

// What one process can do to another: to the first one above all, which has the same user.
namespace carrel::probe {
namespace {

void attack_memory(Report& report, pid_t target, const std::string& name) {
  report.must_fail("ptrace(ATTACH) " + name, ::ptrace(PTRACE_ATTACH, target, nullptr, nullptr));
  report.must_fail("ptrace(SEIZE) " + name, ::ptrace(PTRACE_SEIZE, target, nullptr, nullptr));
  std::array<char, 16> buffer{};
  struct iovec here{buffer.data(), buffer.size()};
  struct iovec there{&buffer, buffer.size()};
  report.must_fail("process_vm_readv " + name, ::process_vm_readv(target, &here, 1, &there, 1, 0));
  report.must_fail("process_vm_writev " + name,
                   ::process_vm_writev(target, &here, 1, &there, 1, 0));
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, target, 0));
  report.must_fail("pidfd_getfd " + name, ::syscall(SYS_pidfd_getfd, pidfd, 0, 0));
  report.must_fail("process_madvise " + name,
                   ::syscall(SYS_process_madvise, pidfd, &here, 1, 21, 0));
  if (pidfd >= 0) {
    ::close(pidfd);
  }
}

void take_over_processes(Report& report, Arguments) {
  attack_memory(report, 1, "the first process");
  const std::string memory = "/proc/1/mem";
  report.must_fail("open " + memory, ::open(memory.c_str(), O_RDWR | O_CLOEXEC));
  report.must_fail("kcmp", ::syscall(SYS_kcmp, 1, ::getpid(), 0, 0, 0));
  report.must_fail("move_pages", ::syscall(SYS_move_pages, 1, 0, nullptr, nullptr, nullptr, 0));
  report.must_fail("migrate_pages", ::syscall(SYS_migrate_pages, 1, 0, nullptr, nullptr));
  const pid_t sibling = ::fork();
  if (sibling == 0) {
    ::pause();
    ::_exit(0);
  }
  attack_memory(report, sibling, "a sibling");
  ::kill(sibling, SIGKILL);
  ::waitpid(sibling, nullptr, 0);
}

// What of the first process the workload must not be able to change.
std::string settings_of_first() {
  std::ostringstream out;
  out << read_some("/proc/1/limits", 4096);
  out << "policy " << ::sched_getscheduler(1) << '\n';
  errno = 0;
  out << "nice " << ::getpriority(PRIO_PROCESS, 1) << '\n';
  out << "io " << ::syscall(SYS_ioprio_get, 1, 1) << '\n';
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ::sched_getaffinity(1, sizeof cpus, &cpus);
  out << "cpus " << CPU_COUNT(&cpus) << '\n';
  out << "oom " << read_some("/proc/1/oom_score_adj", 32);
  out << "comm " << read_some("/proc/1/comm", 32);
  return out.str();
}

std::string state_of_first() {
  const std::string stat = read_some("/proc/1/stat", 4096);
  const std::size_t end = stat.rfind(')');
  return end == stat.npos || end + 2 >= stat.size() ? "?" : stat.substr(end + 2, 1);
}

void signal_first(Report& report) {
  for (int number = 1; number <= 64; ++number) {
    ::kill(1, number);
    ::syscall(SYS_tkill, 1, number);
    ::syscall(SYS_tgkill, 1, 1, number);
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    ::syscall(SYS_rt_sigqueueinfo, 1, number, &info);
    ::syscall(SYS_rt_tgsigqueueinfo, 1, 1, number, &info);
    const long pidfd = ::syscall(SYS_pidfd_open, 1, 0);
    ::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0);
    ::close(static_cast<int>(pidfd));
  }
  // Signals that the kernel sends for a descriptor, to the owner that was named for it.
  for (const int number : {0, SIGKILL, SIGSTOP, SIGURG, SIGCHLD}) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      continue;
    }
    ::fcntl(pair[0], F_SETOWN, 1);
    ::fcntl(pair[0], F_SETSIG, number);
    ::fcntl(pair[0], F_SETFL, O_ASYNC);
    report.expect("the pair works", ::write(pair[1], "x", 1) == 1);
    ::close(pair[0]);
    ::close(pair[1]);
  }
}

void disturb_first_process(Report& report, Arguments) {
  const std::string before = settings_of_first();
  signal_first(report);
  struct rlimit tiny{1, 1};
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    report.must_fail("prlimit(1, " + std::to_string(resource) + ")",
                     ::syscall(SYS_prlimit64, 1, resource, &tiny, nullptr));
  }
  // The upper half of a number is nothing to the kernel; a filter must not look at it either.
  report.must_fail("prlimit(1 + 2^32)",
                   ::syscall(SYS_prlimit64, (1L << 32) | 1, RLIMIT_CPU, &tiny, nullptr));
  report.must_fail("setpriority(PROCESS, 1)", ::setpriority(PRIO_PROCESS, 1, 19));
  report.must_fail("setpriority(PGRP, 1)", ::setpriority(PRIO_PGRP, 1, 19));
  report.must_fail("setpriority(USER)", ::setpriority(PRIO_USER, ::getuid(), 19));
  report.must_fail("setpriority(USER, 0)", ::setpriority(PRIO_USER, 0, 19));
  constexpr int kIdle = 3 << 13;
  report.must_fail("ioprio_set(PROCESS, 1)", ::syscall(SYS_ioprio_set, 1, 1, kIdle));
  report.must_fail("ioprio_set(PGRP, 1)", ::syscall(SYS_ioprio_set, 2, 1, kIdle));
  report.must_fail("ioprio_set(USER)", ::syscall(SYS_ioprio_set, 3, ::getuid(), kIdle));
  report.must_fail("ioprio_set(USER, 0)", ::syscall(SYS_ioprio_set, 3, 0, kIdle));
  struct sched_param normal{};
  for (const int policy : {SCHED_IDLE, SCHED_BATCH}) {
    report.must_fail("sched_setscheduler(1)", ::sched_setscheduler(1, policy, &normal));
  }
  report.must_fail("sched_setscheduler(1 + 2^32)",
                   ::syscall(SYS_sched_setscheduler, (1L << 32) | 1, SCHED_IDLE, &normal));
  report.must_fail("sched_setparam(1)", ::sched_setparam(1, &normal));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  report.must_fail("sched_setaffinity(1)", ::sched_setaffinity(1, sizeof one, &one));
  std::array<unsigned, 14> attributes{sizeof attributes, SCHED_IDLE};
  report.must_fail("sched_setattr(1)", ::syscall(SYS_sched_setattr, 1, attributes.data(), 0));
  report.must_fail("setpgid(1)", ::setpgid(1, 1));
  report.must_fail("PR_SCHED_CORE on it", ::prctl(62, 2, 1, 0, 0));
  report.expect("its settings are unchanged", settings_of_first() == before);
  report.expect("it is not stopped", state_of_first() != "T" && state_of_first() != "t");
}

struct Spelling {
  const char* name;
  long (*call)();
};

constexpr Spelling kRefused[] = {
    {"unshare", [] { return ::syscall(SYS_unshare, CLONE_NEWUSER); }},
    {"setns", [] { return ::syscall(SYS_setns, 0, CLONE_NEWNS); }},
    {"mount", [] { return ::syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, nullptr); }},
    {"ptrace", [] { return ::syscall(SYS_ptrace, PTRACE_ATTACH, 0x7fffffff, 0, 0); }},
    {"keyctl", [] { return ::syscall(SYS_keyctl, 0, -3, 0); }},
    {"socket(AF_PACKET)", [] { return ::syscall(SYS_socket, AF_PACKET, SOCK_DGRAM, 0); }},
    {"personality", [] { return ::syscall(SYS_personality, 0x0040000); }},
};

struct Outcome {
  std::array<long, std::size(kRefused)> results;
};

// Shared with the children that try, so that they can tell.
Outcome* outcome = nullptr;

void try_all() {
  for (std::size_t i = 0; i < std::size(kRefused); ++i) {
    const long result = kRefused[i].call();
    outcome->results[i] = result < 0 ? -errno : result;
  }
}

void judge(Report& report, const std::string& from) {
  for (std::size_t i = 0; i < std::size(kRefused); ++i) {
    const long result = outcome->results[i];
    const std::string what = std::string(kRefused[i].name) + " from " + from;
    if (result == -EPERM || result == -ENOSYS) {
      report.held(what);
    } else {
      report.open(what + ": " + (result < 0 ? error_name(static_cast<int>(-result)) : "it worked"));
    }
    outcome->results[i] = 0;
  }
}

void use_every_caller(Report& report, Arguments) {
  static Outcome shared;
  outcome = &shared;
  pthread_t thread{};
  ::pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        try_all();
        return nullptr;
      },
      nullptr);
  ::pthread_join(thread, nullptr);
  judge(report, "a thread");
  struct sigaction action{};
  action.sa_handler = [](int) { try_all(); };
  ::sigaction(SIGUSR1, &action, nullptr);
  ::raise(SIGUSR1);
  judge(report, "a signal handler");
  // A child that shares the memory, as vfork makes it.
  alignas(16) static std::array<char, 65536> stack;
  const int child = ::clone(
      [](void*) {
        try_all();
        return 0;
      },
      stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
  ::waitpid(child, nullptr, 0);
  judge(report, "a vfork child");
  try_all();
  judge(report, "the main thread");
}

constexpr Probe kProbes[] = {
    {"E06_OtherProcessesCannotBeTakenOver", take_over_processes},
    {"E06_TheFirstProcessCannotBeDisturbed", disturb_first_process},
    {"F04_EveryCallerIsFiltered", use_every_caller},
};

}  // namespace

std::span<const Probe> process_probes() { return kProbes; }

}  // namespace carrel::probe
