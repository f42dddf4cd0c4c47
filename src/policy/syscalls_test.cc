#include "policy/syscalls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "kernel/seccomp.h"
#include "kernel/seccomp_evaluate.h"
#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls_allowed.h"

namespace carrel::policy {
namespace {

using kernel::kAllowCall;
using kernel::kKillProcess;
using kernel::SeccompAction;
using kernel::SyscallRules;

constexpr SeccompAction kEperm = kernel::fail_with(EPERM);
constexpr SeccompAction kEnosys = kernel::fail_with(ENOSYS);

using Values = std::initializer_list<std::uint64_t>;
using Numbers = std::initializer_list<long>;

seccomp_data call_of(long number, std::array<std::uint64_t, 6> arguments = {}) {
  seccomp_data call{};
  call.nr = static_cast<int>(number);
  call.arch = kernel::kNativeArch;
  std::ranges::copy(arguments, call.args);
  return call;
}

SeccompAction workload(long number, std::array<std::uint64_t, 6> arguments = {}) {
  static const SyscallRules rules = workload_syscalls();
  return rules.decide(call_of(number, arguments));
}

// Calls `check` with every number up to 600, and for each with all combinations of the argument
// values that some condition of either set of rules looks at, their neighbours, and the same with
// bits that a mask or a cut to 32 bits drops.
void for_interesting_calls(const SyscallRules& one, const SyscallRules& other,
                           const std::function<void(const seccomp_data&)>& check) {
  for (std::uint32_t number = 0; number <= 600; ++number) {
    std::array<std::set<std::uint64_t>, 6> values;
    for (const SyscallRules* rules : {&one, &other}) {
      for (const auto& clause : rules->verdict(number).clauses) {
        for (const auto& condition : clause.conditions) {
          auto& interesting = values[static_cast<std::size_t>(condition.argument)];
          interesting.insert({0, 1, ~0ULL, condition.mask, ~condition.mask, 0x8000'0000});
          for (const std::uint64_t value : condition.values) {
            interesting.insert({value, value + 1, value ^ 1, value | 1ULL << 32,
                                value | (~condition.mask & 0xffff'ffff)});
          }
        }
      }
    }
    std::vector<seccomp_data> calls{call_of(number)};
    for (std::size_t position = 0; position < values.size(); ++position) {
      std::vector<seccomp_data> extended;
      for (const seccomp_data& call : calls) {
        extended.push_back(call);
        for (const std::uint64_t value : values[position]) {
          extended.push_back(call);
          extended.back().args[position] = value;
        }
      }
      calls = std::move(extended);
    }
    std::ranges::for_each(calls, check);
  }
}

TEST(SyscallsTest, CompiledProgramsDecideAsTheRules) {
  for (const SyscallRules& rules : {workload_syscalls(), debug_syscalls(), guest_syscalls(),
                                    debug_guest_syscalls(), without_set_id(workload_syscalls())}) {
    const kernel::SeccompProgram program = kernel::compile(rules);
    std::size_t checked = 0;
    for_interesting_calls(rules, rules, [&](const seccomp_data& call) {
      ++checked;
      ASSERT_EQ(kernel::evaluate(program, call).value, rules.decide(call).value)
          << call.nr << " " << call.args[0] << " " << call.args[1] << " " << call.args[2];
    });
    EXPECT_GT(checked, 5000U);
  }
}

// The strictest answer of all filters counts, and among equals the newest one's: so a workload
// under both filters gets its own answer if the guest's filter allows or says the same.
void expect_never_in_the_way(const SyscallRules& outer, const SyscallRules& inner) {
  for_interesting_calls(outer, inner, [&](const seccomp_data& call) {
    const SeccompAction answer = outer.decide(call);
    ASSERT_TRUE(answer == kAllowCall || answer == inner.decide(call))
        << call.nr << " " << call.args[0] << " " << call.args[1] << " " << call.args[2];
  });
}

TEST(SyscallsTest, GuestMayDoWhateverItsWorkloadMay) {
  expect_never_in_the_way(guest_syscalls(), workload_syscalls());
  expect_never_in_the_way(debug_guest_syscalls(), debug_syscalls());
  expect_never_in_the_way(debug_syscalls(), workload_syscalls());
  expect_never_in_the_way(guest_syscalls(), without_set_id(workload_syscalls()));
}

TEST(SyscallsTest, GuestMayLimitAndScheduleAnyProcess) {
  const SyscallRules rules = guest_syscalls();
  EXPECT_EQ(rules.decide(call_of(SYS_prlimit64, {77})), kAllowCall);
  EXPECT_EQ(rules.decide(call_of(SYS_sched_setaffinity, {1})), kAllowCall);
  EXPECT_EQ(rules.decide(call_of(SYS_setpriority, {0, 1})), kAllowCall);
}

TEST(SyscallsTest, GuestMayNotEnterNamespacesMountOrTrace) {
  const SyscallRules rules = guest_syscalls();
  for (const long number : Numbers{SYS_setns, SYS_mount, SYS_pivot_root, SYS_ptrace,
                                   SYS_pidfd_getfd, SYS_process_vm_readv, SYS_bpf}) {
    EXPECT_EQ(rules.decide(call_of(number)), kEperm) << number;
  }
  EXPECT_EQ(rules.decide(call_of(SYS_unshare, {CLONE_NEWUSER})), kEperm);
}

TEST(SyscallsTest, DangerousCallsAreRefusedWithAnyArguments) {
  constexpr long kRefused[] = {
#if defined(__x86_64__)
      SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_create_module, SYS_uselib, SYS__sysctl,
#endif
      // Namespaces and mounts.
      SYS_setns, SYS_mount, SYS_umount2, SYS_chroot, SYS_pivot_root, SYS_swapon, SYS_swapoff,
      SYS_open_tree, SYS_open_tree_attr, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
      SYS_fspick, SYS_mount_setattr, SYS_statmount, SYS_listmount, SYS_listns,
      // The kernel's surface.
      SYS_userfaultfd, SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key, SYS_request_key,
      SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module,
      SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fanotify_init, SYS_fanotify_mark,
      SYS_quotactl, SYS_quotactl_fd, SYS_acct, SYS_syslog, SYS_reboot, SYS_lookup_dcookie,
      SYS_lsm_get_self_attr, SYS_lsm_set_self_attr, SYS_lsm_list_modules, SYS_vhangup,
      // Other processes and the placement of memory.
      SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp,
      SYS_process_madvise, SYS_process_mrelease, SYS_move_pages, SYS_migrate_pages, SYS_mbind,
      SYS_set_mempolicy, SYS_set_mempolicy_home_node, SYS_get_mempolicy, SYS_mseal,
      // Clocks and names.
      SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname,
      SYS_setdomainname};
  for (const long number : kRefused) {
    for (const std::uint64_t value : Values{0ULL, 1ULL, ~0ULL}) {
      EXPECT_EQ(workload(number, {value, value, value, value, value, value}), kEperm) << number;
    }
  }
}

TEST(SyscallsTest, CallsThatCannotBeFilteredAndUnassignedNumbersAreAbsent) {
  for (const long number :
       Numbers{SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, 337L,
               423L, SYS_listns + 1L, 512L, 100000L}) {
    EXPECT_EQ(workload(number), kEnosys) << number;
  }
}

TEST(SyscallsTest, AllowedCallsAreAmongTheKnownOnes) {
  const SyscallRules rules = workload_syscalls();
  EXPECT_EQ(rules.limit(), static_cast<std::uint32_t>(SYS_listns) + 1);
  for (const int number : kAllowedSyscalls) {
    EXPECT_EQ(rules.decide(call_of(number)), kAllowCall) << number;
    EXPECT_TRUE(std::ranges::any_of(kernel::kKnownSyscalls, [&](const auto& known) {
      return known.first <= number && number <= known.last;
    })) << number;
  }
}

TEST(SyscallsTest, NamespaceFlagsAreRefusedOneByOne) {
  for (const std::uint64_t flag : Values{CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                         CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, 0x80}) {
    EXPECT_EQ(workload(SYS_clone, {flag | 17}), kEperm) << flag;
    EXPECT_EQ(workload(SYS_unshare, {flag | CLONE_FS}), kEperm) << flag;
  }
  EXPECT_EQ(workload(SYS_clone, {CLONE_VM | CLONE_VFORK | 17}), kAllowCall);
  EXPECT_EQ(workload(SYS_unshare, {CLONE_FS | CLONE_FILES}), kAllowCall);
  EXPECT_EQ(workload(SYS_unshare, {1ULL << 37}), kEperm);
  EXPECT_EQ(workload(SYS_unshare, {0x0010'0000}), kEperm);
}

TEST(SyscallsTest, SocketsAreUnixInternetAndRouteNetlink) {
  struct Row {
    std::uint64_t family, type, protocol;
    SeccompAction answer;
  };
  constexpr std::uint64_t kMptcp = 262;
  constexpr Row kRows[] = {
      {AF_UNIX, SOCK_STREAM, 0, kAllowCall},
      {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, kAllowCall},
      {AF_UNIX, SOCK_SEQPACKET, 0, kAllowCall},
      {AF_UNIX, SOCK_RAW, 0, kEperm},
      {AF_INET, SOCK_STREAM, 0, kAllowCall},
      {AF_INET, SOCK_STREAM, IPPROTO_TCP, kAllowCall},
      {AF_INET6, SOCK_DGRAM, IPPROTO_UDP, kAllowCall},
      {AF_INET, SOCK_DGRAM, IPPROTO_ICMP, kAllowCall},
      {AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6, kAllowCall},
      {AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6, kEperm},
      {AF_INET6, SOCK_DGRAM, IPPROTO_ICMP, kEperm},
      {AF_INET, SOCK_STREAM, IPPROTO_ICMP, kEperm},
      {AF_INET, SOCK_RAW, IPPROTO_ICMP, kEperm},
      {AF_INET, SOCK_RAW, 0, kEperm},
      {AF_INET, SOCK_PACKET, 0, kEperm},
      {AF_INET, SOCK_STREAM, kMptcp, kEperm},
      {AF_INET, SOCK_STREAM, kMptcp | 1ULL << 32, kEperm},
      {AF_INET, SOCK_STREAM, IPPROTO_SCTP, kEperm},
      {AF_INET, SOCK_DCCP, IPPROTO_DCCP, kEperm},
      {AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE, kEperm},
      {AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0, kAllowCall},
      {AF_NETLINK, SOCK_DGRAM, 0, kAllowCall},
      {AF_NETLINK, SOCK_STREAM, 0, kEperm},
      {AF_NETLINK, SOCK_RAW, 12, kEperm},
      {AF_PACKET, SOCK_DGRAM, 0, kEperm},
      {AF_ALG, SOCK_SEQPACKET, 0, kEperm},
      {AF_VSOCK, SOCK_STREAM, 0, kEperm},
      {AF_ALG | 1ULL << 32, SOCK_SEQPACKET, 0, kEperm},
      {33, SOCK_DGRAM, 0, kEperm},
  };
  for (const Row& row : kRows) {
    for (const long number : Numbers{SYS_socket, SYS_socketpair}) {
      EXPECT_EQ(workload(number, {row.family, row.type, row.protocol}), row.answer)
          << row.family << " " << row.type << " " << row.protocol;
    }
  }
}

TEST(SyscallsTest, TerminalTakeoverIsRefusedWhateverTheUpperHalfSays) {
  for (const std::uint64_t request : Values{TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS, 0x4b4d, 0x4b45,
                                            0x4b47, 0x4bfb, 0x4b3a, 0x5606}) {
    EXPECT_EQ(workload(SYS_ioctl, {0, request}), kEperm) << request;
    EXPECT_EQ(workload(SYS_ioctl, {0, request | 1ULL << 32}), kEperm) << request;
  }
  for (const std::uint64_t request : Values{TCGETS, TIOCGWINSZ, TIOCSCTTY, FIONREAD, FIOCLEX}) {
    EXPECT_EQ(workload(SYS_ioctl, {0, request}), kAllowCall) << request;
  }
}

TEST(SyscallsTest, FirstProcessIsOutOfReach) {
  constexpr std::uint64_t kHigh = 1ULL << 32;
  EXPECT_EQ(workload(SYS_prlimit64, {0}), kAllowCall);
  EXPECT_EQ(workload(SYS_prlimit64, {kHigh}), kAllowCall);
  EXPECT_EQ(workload(SYS_prlimit64, {1}), kEperm);
  EXPECT_EQ(workload(SYS_prlimit64, {1 | kHigh}), kEperm);
  EXPECT_EQ(workload(SYS_prlimit64, {50}), kEperm);
  for (const long number : Numbers{SYS_sched_setaffinity, SYS_sched_setscheduler,
                                   SYS_sched_setparam, SYS_sched_setattr}) {
    EXPECT_EQ(workload(number, {1}), kEperm) << number;
    EXPECT_EQ(workload(number, {1 | kHigh}), kEperm) << number;
    EXPECT_EQ(workload(number, {0}), kAllowCall) << number;
    EXPECT_EQ(workload(number, {50}), kAllowCall) << number;
  }
  struct Row {
    std::uint64_t which, who;
    SeccompAction answer;
  };
  // ioprio_set() counts process, group and user from 1, setpriority() from 0.
  constexpr std::pair<long, int> kBases[] = {{SYS_setpriority, 0}, {SYS_ioprio_set, 1}};
  for (const auto& [number, base] : kBases) {
    const auto process = static_cast<std::uint64_t>(base);
    for (const Row& row : {Row{process, 0, kAllowCall}, Row{process, 9, kAllowCall},
                           Row{process, 1, kEperm}, Row{process, 1 | kHigh, kEperm},
                           Row{process + 1, 0, kAllowCall}, Row{process + 1, 1, kEperm},
                           Row{process + 2, 0, kEperm}, Row{process + 2, 1000, kEperm}}) {
      EXPECT_EQ(workload(number, {row.which, row.who}), row.answer)
          << number << " " << row.which << " " << row.who;
    }
  }
}

TEST(SyscallsTest, SignalsThatNameTheFirstProcessCanBeRefused) {
  const SyscallRules rules = without_signals_to_first(workload_syscalls());
  constexpr std::uint64_t kHigh = 1ULL << 32;
  for (const long number : Numbers{SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo,
                                   SYS_rt_tgsigqueueinfo, SYS_pidfd_open}) {
    EXPECT_EQ(rules.decide(call_of(number, {1})), kEperm) << number;
    EXPECT_EQ(rules.decide(call_of(number, {1 | kHigh})), kEperm) << number;
    EXPECT_EQ(rules.decide(call_of(number, {77})), workload(number, {77})) << number;
    EXPECT_EQ(workload(number, {1}), workload(number, {77})) << number;
  }
  constexpr std::uint64_t kOwners[] = {1, 1 | kHigh, 0xffff'ffff, ~std::uint64_t{0}};
  for (const std::uint64_t owner : kOwners) {
    EXPECT_EQ(rules.decide(call_of(SYS_fcntl, {5, F_SETOWN, owner})), kEperm) << owner;
    EXPECT_EQ(workload(SYS_fcntl, {5, F_SETOWN, owner}), kAllowCall) << owner;
  }
  EXPECT_EQ(rules.decide(call_of(SYS_fcntl, {5, F_SETOWN, 77})), kAllowCall);
  EXPECT_EQ(rules.decide(call_of(SYS_fcntl, {5, F_GETFL, 1})), kAllowCall);
  EXPECT_EQ(rules.decide(call_of(SYS_fcntl, {5, F_SETOWN_EX, 77})), kEperm);
  EXPECT_EQ(rules.decide(call_of(SYS_ioctl, {5, FIOSETOWN})), kEperm);
  EXPECT_EQ(rules.decide(call_of(SYS_ioctl, {5, SIOCSPGRP})), kEperm);
  EXPECT_EQ(rules.decide(call_of(SYS_ioctl, {5, TIOCSTI})), kEperm);
  EXPECT_EQ(rules.decide(call_of(SYS_ioctl, {5, TCGETS})), kAllowCall);
}

TEST(SyscallsTest, ProgramsMayFilterThemselvesButNotSupervise) {
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, 0}), kAllowCall);
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC}),
            kAllowCall);
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER}),
            kEperm);
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | 1}),
            kEperm);
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_GET_ACTION_AVAIL, 0}), kAllowCall);
  EXPECT_EQ(workload(SYS_seccomp, {SECCOMP_GET_NOTIF_SIZES, 0}), kEperm);
}

TEST(SyscallsTest, ProcessControlsThatReachTheKernelAreRefused) {
  for (const std::uint64_t option :
       Values{PR_SET_MM, PR_SET_TSC, 62, PR_SET_SECUREBITS, PR_SET_KEEPCAPS}) {
    EXPECT_EQ(workload(SYS_prctl, {option}), kEperm) << option;
  }
  for (const std::uint64_t option : Values{PR_SET_NAME, PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS,
                                           PR_SET_SECCOMP, PR_CAP_AMBIENT, PR_SET_DUMPABLE}) {
    EXPECT_EQ(workload(SYS_prctl, {option}), kAllowCall) << option;
  }
  for (const std::uint64_t persona : Values{0UL, 8UL, 0x20000UL, 0x20008UL, 0xffff'ffffUL}) {
    EXPECT_EQ(workload(SYS_personality, {persona}), kAllowCall) << persona;
  }
  for (const std::uint64_t persona : Values{0x40000UL, 0x400000UL, 0x40008UL, 1UL}) {
    EXPECT_EQ(workload(SYS_personality, {persona}), kEperm) << persona;
  }
}

TEST(SyscallsTest, DeviceNodesCannotBeMade) {
  for (const std::uint64_t mode : Values{S_IFCHR | 0666, S_IFBLK | 0600, S_IFDIR | 0755}) {
    EXPECT_EQ(workload(SYS_mknodat, {0, 0, mode}), kEperm) << mode;
    EXPECT_EQ(workload(SYS_mknodat, {0, 0, mode | 0x10000}), kEperm) << mode;
  }
  for (const std::uint64_t mode : Values{0644, S_IFREG | 0644, S_IFIFO | 0600, S_IFSOCK | 0600}) {
    EXPECT_EQ(workload(SYS_mknodat, {0, 0, mode}), kAllowCall) << mode;
  }
#if defined(__x86_64__)
  EXPECT_EQ(workload(SYS_mknod, {0, S_IFCHR | 0666}), kEperm);
  EXPECT_EQ(workload(SYS_mknod, {0, S_IFIFO | 0600}), kAllowCall);
#endif
  EXPECT_EQ(workload(SYS_renameat2, {0, 0, 0, 0, 4}), kEperm);
  EXPECT_EQ(workload(SYS_renameat2, {0, 0, 0, 0, 1}), kAllowCall);
}

TEST(SyscallsTest, WhereFilesStayOnTheHostNoneIsGivenItsOwnersRights) {
  const SyscallRules rules = without_set_id(workload_syscalls());
  const auto decide = [&](long number, std::array<std::uint64_t, 6> arguments) {
    return rules.decide(call_of(number, arguments));
  };
  for (const std::uint64_t bits : Values{04000, 02000, 06755, 04000 | 1ULL << 32}) {
    EXPECT_EQ(decide(SYS_fchmod, {3, bits}), kEperm) << bits;
    EXPECT_EQ(decide(SYS_fchmodat, {3, 0, bits}), kEperm) << bits;
    EXPECT_EQ(decide(SYS_fchmodat2, {3, 0, bits}), kEperm) << bits;
    EXPECT_EQ(decide(SYS_openat, {3, 0, O_CREAT | O_WRONLY, bits}), kEperm) << bits;
    EXPECT_EQ(decide(SYS_openat, {3, 0, O_TMPFILE | O_WRONLY, bits}), kEperm) << bits;
    EXPECT_EQ(decide(SYS_openat, {3, 0, O_RDONLY | O_DIRECTORY, bits}), kAllowCall) << bits;
    EXPECT_EQ(decide(SYS_mknodat, {3, 0, S_IFREG | bits}), kEperm) << bits;
    EXPECT_EQ(workload(SYS_fchmod, {3, bits}), kAllowCall) << bits;
  }
  EXPECT_EQ(decide(SYS_openat2, {}), kEnosys);
  EXPECT_EQ(decide(SYS_fchmod, {3, 01777}), kAllowCall);
  EXPECT_EQ(decide(SYS_openat, {3, 0, O_CREAT | O_WRONLY, 0666}), kAllowCall);
  EXPECT_EQ(decide(SYS_mknodat, {3, 0, S_IFIFO | 0644}), kAllowCall);
  EXPECT_EQ(decide(SYS_mknodat, {3, 0, S_IFCHR | 0644}), kEperm);
#if defined(__x86_64__)
  EXPECT_EQ(decide(SYS_chmod, {0, 04755}), kEperm);
  EXPECT_EQ(decide(SYS_creat, {0, 04755}), kEperm);
  EXPECT_EQ(decide(SYS_open, {0, O_CREAT, 04755}), kEperm);
  EXPECT_EQ(decide(SYS_open, {0, O_RDONLY, 04755}), kAllowCall);
  EXPECT_EQ(decide(SYS_mknod, {0, S_IFREG | 04755}), kEperm);
#endif
}

TEST(SyscallsTest, WhoeverServesAMachineDoesLittle) {
  const SyscallRules carries = connects_machine_syscalls();
  const SyscallRules writes = writes_for_machine_syscalls();
  for (const SyscallRules& rules : {beside_machine_syscalls(), carries, writes}) {
    for (const long number : {SYS_execve, SYS_clone, SYS_socket, SYS_connect, SYS_openat, SYS_mount,
                              SYS_ptrace, SYS_fchownat, SYS_fchmod, SYS_unshare, SYS_kill}) {
      EXPECT_EQ(rules.decide(call_of(number)), kEperm) << number;
    }
  }
  EXPECT_EQ(carries.decide(call_of(SYS_socketpair, {AF_UNIX})), kAllowCall);
  EXPECT_EQ(carries.decide(call_of(SYS_socketpair, {AF_INET})), kEperm);
  EXPECT_EQ(carries.decide(call_of(SYS_unlinkat)), kEperm);
  EXPECT_EQ(writes.decide(call_of(SYS_socketpair, {AF_UNIX})), kEperm);
  EXPECT_EQ(writes.decide(call_of(SYS_fchmodat, {3, 0, 01777})), kAllowCall);
  for (const std::uint64_t bits : {04755U, 02755U}) {
    EXPECT_EQ(writes.decide(call_of(SYS_fchmodat, {3, 0, bits})), kEperm);
    EXPECT_EQ(writes.decide(call_of(SYS_mkdirat, {3, 0, bits})), kEperm);
    EXPECT_EQ(writes.decide(call_of(SYS_mknodat, {3, 0, S_IFIFO | bits})), kEperm);
  }
  for (const std::uint64_t kind : {S_IFCHR + 0U, S_IFBLK + 0U, 0U}) {
    EXPECT_EQ(writes.decide(call_of(SYS_mknodat, {3, 0, kind | 0600U})), kEperm) << kind;
  }
  EXPECT_EQ(writes.decide(call_of(SYS_mknodat, {3, 0, S_IFIFO | 0600U})), kAllowCall);
  constexpr std::uint64_t kWhiteout = 4;  // RENAME_WHITEOUT
  EXPECT_EQ(writes.decide(call_of(SYS_renameat2, {3, 0, 3, 0, 1})), kAllowCall);
  EXPECT_EQ(writes.decide(call_of(SYS_renameat2, {3, 0, 3, 0, kWhiteout})), kEperm);
}

TEST(SyscallsTest, DebuggersMayTraceButNotTakeDescriptors) {
  const SyscallRules rules = debug_syscalls();
  for (const long number : Numbers{SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev}) {
    EXPECT_EQ(rules.decide(call_of(number)), kAllowCall) << number;
  }
  EXPECT_EQ(rules.decide(call_of(SYS_pidfd_getfd)), kEperm);
}

TEST(SyscallsTest, ProgramsAreShort) {
  const auto length = [](const SyscallRules& rules) {
    return static_cast<int>(kernel::compile(rules).instructions.size());
  };
  RecordProperty("workload_instructions", length(workload_syscalls()));
  RecordProperty("guest_instructions", length(guest_syscalls()));
  EXPECT_LE(length(workload_syscalls()), 220);
  EXPECT_LE(length(debug_syscalls()), 220);
  EXPECT_LE(length(guest_syscalls()), 220);
  EXPECT_LE(length(without_set_id(workload_syscalls())), 260);
}

TEST(SyscallsTest, ProgramIsBuiltWithinAHundredMicroseconds) {
#if !defined(NDEBUG) || defined(CARREL_SANITIZED)
  GTEST_SKIP() << "time counts in release builds only";
#else
  auto best = std::chrono::nanoseconds::max();
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    const kernel::SeccompProgram program = kernel::compile(workload_syscalls());
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    ASSERT_FALSE(program.instructions.empty());
  }
  RecordProperty("nanoseconds", static_cast<int>(best.count()));
  EXPECT_LT(best, std::chrono::microseconds(100));
#endif
}

}  // namespace
}  // namespace carrel::policy
