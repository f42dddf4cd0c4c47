// Loads the workload's filter into child processes and makes the calls for real. The controls
// make the same calls without it; they are chosen so that they fail in another way or touch
// nothing but the child itself.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

#include "kernel/seccomp.h"
#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls.h"

namespace carrel::policy {
namespace {

enum class Filter { kNone, kWorkload, kGuestAndWorkload };

// What came of a call: the signal that ended the child, or the call's errno, 0 for success.
struct Outcome {
  int signal = 0;
  int error_number = 0;
};

void put_under(Filter filter, const kernel::SeccompProgram& guest,
               const kernel::SeccompProgram& workload) {
  constexpr int kNoFilter = 250;
  if (filter == Filter::kNone) {
    return;
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    ::_exit(kNoFilter);
  }
  if (filter == Filter::kGuestAndWorkload && kernel::load_seccomp_child(guest.view()) != 0) {
    ::_exit(kNoFilter);
  }
  if (kernel::load_seccomp_child(workload.view()) != 0) {
    ::_exit(kNoFilter);
  }
}

template <typename Call>
Outcome outcome_of(Filter filter, Call call) {
  const kernel::SeccompProgram guest = kernel::compile(guest_syscalls());
  const kernel::SeccompProgram workload = kernel::compile(workload_syscalls());
  const pid_t child = ::fork();
  if (child == 0) {
    put_under(filter, guest, workload);
    errno = 0;
    ::_exit(call() < 0 ? errno : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? Outcome{WTERMSIG(status), 0} : Outcome{0, WEXITSTATUS(status)};
}

struct Probe {
  const char* name;
  int error_number;
  long number;
  std::array<std::uint64_t, 5> arguments;
};

Outcome outcome_of(Filter filter, const Probe& probe) {
  return outcome_of(filter, [&] {
    const auto& a = probe.arguments;
    return ::syscall(probe.number, a[0], a[1], a[2], a[3], a[4]);
  });
}

constexpr std::uint64_t kNoDescriptor = 0xffff'ffff;
constexpr std::uint64_t kBad = 0xffff'ffff;
constexpr std::uint64_t kHigh = 1ULL << 32;
constexpr std::uint64_t kTiocsti = TIOCSTI;

// Each fails differently, or changes only the calling process, when no filter is loaded.
constexpr Probe kProbes[] = {
    {"unshare(NEWUSER)", EPERM, SYS_unshare, {CLONE_NEWUSER}},
    {"unshare(NEWUTS)", EPERM, SYS_unshare, {CLONE_NEWUTS}},
    {"setns", EPERM, SYS_setns, {kNoDescriptor}},
    {"clone3", ENOSYS, SYS_clone3, {0, 0}},
    {"io_uring_setup", ENOSYS, SYS_io_uring_setup, {1, 0}},
    {"io_uring_enter", ENOSYS, SYS_io_uring_enter, {kNoDescriptor}},
    {"ptrace", EPERM, SYS_ptrace, {PTRACE_PEEKDATA, 0}},
    {"process_vm_readv", EPERM, SYS_process_vm_readv, {0, 0, 0, 0, 0}},
    {"pidfd_getfd", EPERM, SYS_pidfd_getfd, {kNoDescriptor}},
    {"mount", EPERM, SYS_mount, {0, 0, 0, 0, 0}},
    {"umount2", EPERM, SYS_umount2, {0, kBad}},
    {"pivot_root", EPERM, SYS_pivot_root, {0, 0}},
    {"chroot", EPERM, SYS_chroot, {0}},
    {"open_tree", EPERM, SYS_open_tree, {kNoDescriptor, 0, kBad}},
    {"fsopen", EPERM, SYS_fsopen, {0, kBad}},
    {"mount_setattr", EPERM, SYS_mount_setattr, {kNoDescriptor, 0, 0, 0, 0}},
    {"swapon", EPERM, SYS_swapon, {0, kBad}},
    {"bpf", EPERM, SYS_bpf, {kBad, 0, 0}},
    {"perf_event_open", EPERM, SYS_perf_event_open, {0, 0, 0, kNoDescriptor, kBad}},
    {"userfaultfd", EPERM, SYS_userfaultfd, {kBad}},
    {"keyctl", EPERM, SYS_keyctl, {kBad}},
    {"add_key", EPERM, SYS_add_key, {0, 0, 0, 0, 0}},
    {"request_key", EPERM, SYS_request_key, {0, 0, 0, 0}},
    {"kexec_load", EPERM, SYS_kexec_load, {0, 0, 0, kBad}},
    {"init_module", EPERM, SYS_init_module, {0, 0, 0}},
    {"finit_module", EPERM, SYS_finit_module, {kNoDescriptor, 0, kBad}},
    {"open_by_handle_at", EPERM, SYS_open_by_handle_at, {kNoDescriptor, 0, 0}},
    {"name_to_handle_at", EPERM, SYS_name_to_handle_at, {kNoDescriptor, 0, 0, 0, kBad}},
    {"fanotify_init", EPERM, SYS_fanotify_init, {kBad, kBad}},
    {"quotactl", EPERM, SYS_quotactl, {kBad, 0, 0, 0}},
    {"acct", EPERM, SYS_acct, {1}},
    {"syslog", EPERM, SYS_syslog, {kBad, 0, 0}},
    {"reboot", EPERM, SYS_reboot, {0, 0, 0, 0}},
    {"kcmp", EPERM, SYS_kcmp, {kBad, kBad}},
    {"clock_settime", EPERM, SYS_clock_settime, {kBad, 0}},
    {"settimeofday", EPERM, SYS_settimeofday, {0, 0}},
    {"adjtimex", EPERM, SYS_adjtimex, {0}},
    {"socket(AF_ALG)", EPERM, SYS_socket, {AF_ALG, SOCK_SEQPACKET, 0}},
    {"socket(AF_PACKET)", EPERM, SYS_socket, {AF_PACKET, SOCK_DGRAM, 0}},
    {"socket(AF_VSOCK)", EPERM, SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}},
    {"socket(raw)", EPERM, SYS_socket, {AF_INET, SOCK_RAW, IPPROTO_ICMP}},
    {"socket(MPTCP)", EPERM, SYS_socket, {AF_INET, SOCK_STREAM, 262}},
    {"socket(NETFILTER)", EPERM, SYS_socket, {AF_NETLINK, SOCK_RAW, 12}},
    {"TIOCSTI", EPERM, SYS_ioctl, {kNoDescriptor, kTiocsti}},
    {"TIOCSTI with an upper half", EPERM, SYS_ioctl, {kNoDescriptor, kTiocsti | kHigh}},
    {"TIOCLINUX", EPERM, SYS_ioctl, {kNoDescriptor, TIOCLINUX}},
    {"TIOCSETD", EPERM, SYS_ioctl, {kNoDescriptor, TIOCSETD}},
    {"ADDR_NO_RANDOMIZE", EPERM, SYS_personality, {0x40000}},
    {"READ_IMPLIES_EXEC", EPERM, SYS_personality, {0x400000}},
    {"mknodat(device)", EPERM, SYS_mknodat, {kNoDescriptor, 0, S_IFCHR | 0600, 0}},
    {"PR_SET_MM", EPERM, SYS_prctl, {PR_SET_MM, 0, 0, 0, 1}},
    {"PR_SET_TSC", EPERM, SYS_prctl, {PR_SET_TSC, kBad}},
    {"seccomp(NEW_LISTENER)",
     EPERM,
     SYS_seccomp,
     {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0}},
    {"prlimit64(other)", EPERM, SYS_prlimit64, {kBad, kBad, 0, 0}},
    {"setpriority(PRIO_USER)", EPERM, SYS_setpriority, {2, kBad, 0}},
#if defined(__x86_64__)
    {"mknod(device)", EPERM, SYS_mknod, {0, S_IFBLK | 0600, 0}},
    {"iopl", EPERM, SYS_iopl, {4}},
    {"modify_ldt", EPERM, SYS_modify_ldt, {kBad, 0, 0}},
#endif
};

TEST(SyscallsEnforcedTest, RefusedCallsFailUnderTheFilter) {
  for (const Probe& probe : kProbes) {
    for (const Filter filter : {Filter::kWorkload, Filter::kGuestAndWorkload}) {
      const Outcome filtered = outcome_of(filter, probe);
      EXPECT_EQ(filtered.signal, 0) << probe.name;
      EXPECT_EQ(filtered.error_number, probe.error_number) << probe.name;
    }
  }
}

TEST(SyscallsEnforcedTest, RefusedCallsHaveAnotherOutcomeWithoutTheFilter) {
  const auto new_namespace = [] { return ::unshare(CLONE_NEWUTS); };
  if (outcome_of(Filter::kNone, new_namespace).error_number != 0 || ::prctl(PR_GET_SECCOMP) != 0) {
    GTEST_SKIP() << "without all rights the kernel refuses these calls by itself";
  }
  for (const Probe& probe : kProbes) {
    const Outcome control = outcome_of(Filter::kNone, probe);
    EXPECT_EQ(control.signal, 0) << probe.name;
    EXPECT_NE(control.error_number, probe.error_number) << probe.name << " proves nothing";
  }
}

TEST(SyscallsEnforcedTest, OrdinaryCallsWorkUnderBothFilters) {
  constexpr Probe kOrdinary[] = {
      {"getpid", 0, SYS_getpid, {}},
      {"socket(AF_UNIX)", 0, SYS_socket, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0}},
      {"socket(TCP)", 0, SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_TCP}},
      {"socket(route)", 0, SYS_socket, {AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0}},
      {"unshare(FILES)", 0, SYS_unshare, {CLONE_FILES | CLONE_FS}},
      {"personality", 0, SYS_personality, {0xffff'ffff}},
      {"PR_SET_DUMPABLE", 0, SYS_prctl, {PR_SET_DUMPABLE, 0, 0, 0, 0}},
      {"prlimit64(self)", 0, SYS_prlimit64, {0, 7, 0, 0}},
      {"epoll_create1", 0, SYS_epoll_create1, {0}},
      {"setpriority(self)", 0, SYS_setpriority, {0, 0, 10}},
  };
  for (const Probe& probe : kOrdinary) {
    const Outcome outcome = outcome_of(Filter::kGuestAndWorkload, probe);
    EXPECT_EQ(outcome.signal, 0) << probe.name;
    EXPECT_EQ(outcome.error_number, 0) << probe.name;
  }
}

TEST(SyscallsEnforcedTest, UnassignedNumbersAreAbsent) {
  for (const long number : {400L, SYS_listns + 1L, 600L, -1L}) {
    const Outcome outcome = outcome_of(Filter::kWorkload, Probe{"unassigned", ENOSYS, number, {}});
    EXPECT_EQ(outcome.signal, 0) << number;
    EXPECT_EQ(outcome.error_number, ENOSYS) << number;
  }
}

TEST(SyscallsEnforcedTest, ThreadsAndChildrenAreUnderTheFilterToo) {
  const Outcome in_thread = outcome_of(Filter::kWorkload, [] {
    long result = 0;
    int error_number = 0;
    std::thread([&] {
      result = ::syscall(SYS_unshare, CLONE_NEWUTS);
      error_number = errno;
    }).join();
    errno = error_number;
    return result;
  });
  EXPECT_EQ(in_thread.error_number, EPERM);
  const Outcome in_child = outcome_of(Filter::kWorkload, [] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(::syscall(SYS_io_uring_setup, 1, nullptr) < 0 ? errno : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return -1;
  });
  EXPECT_EQ(in_child.error_number, ENOSYS);
}

#if defined(__x86_64__)
TEST(SyscallsEnforcedTest, X32NumbersEndTheProcess) {
  const auto getpid_x32 = [] { return ::syscall(0x4000'0000 | SYS_getpid); };
  EXPECT_EQ(outcome_of(Filter::kNone, getpid_x32).signal, 0);
  EXPECT_EQ(outcome_of(Filter::kWorkload, getpid_x32).signal, SIGSYS);
}

TEST(SyscallsEnforcedTest, CallsOfThe32BitConventionEndTheProcess) {
  const auto getpid_i386 = [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result;
  };
  if (outcome_of(Filter::kNone, getpid_i386).signal == SIGSEGV) {
    GTEST_SKIP() << "this kernel has no 32-bit calls";
  }
  EXPECT_EQ(outcome_of(Filter::kWorkload, getpid_i386).signal, SIGSYS);
}
#endif

// Runs a shell script under both filters; its output, or how it ended.
std::string output_of(const char* script) {
  const kernel::SeccompProgram guest = kernel::compile(guest_syscalls());
  const kernel::SeccompProgram workload = kernel::compile(workload_syscalls());
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    put_under(Filter::kGuestAndWorkload, guest, workload);
    ::execl("/bin/bash", "bash", "-c", script, nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0 ? output : output + "[wait status " + std::to_string(status) + "]";
}

TEST(SyscallsEnforcedTest, ShellRunsUnderTheFilter) {
  EXPECT_EQ(output_of("echo hi | cat; ls / >/dev/null; (ulimit -n 64; true) && nice true; "
                      "d=$(mktemp -d) && mkfifo $d/p && mv $d/p $d/q && rm -r $d"),
            "hi\n");
}

TEST(SyscallsEnforcedTest, PythonRunsThreadsProcessesAndSocketsUnderTheFilter) {
  if (output_of("command -v python3 >/dev/null && echo yes") != "yes\n") {
    GTEST_SKIP() << "python3 is not installed";
  }
  EXPECT_EQ(output_of("python3 -c '\n"
                      "import os, socket, subprocess, tempfile, threading\n"
                      "t = threading.Thread(target=lambda: print(\"thread\", flush=True))\n"
                      "t.start(); t.join()\n"
                      "print(subprocess.check_output([\"echo\", \"child\"]).decode(), end=\"\")\n"
                      "a, b = socket.socketpair(); a.send(b\"pair\"); print(b.recv(4).decode())\n"
                      "s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()\n"
                      "c = socket.create_connection(s.getsockname()); print(\"tcp\")\n"
                      "print(len(socket.if_nameindex()) > 0)\n"
                      "'"),
            "thread\nchild\npair\ntcp\nTrue\n");
}

}  // namespace
}  // namespace carrel::policy
