#include "policy/syscalls.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls_allowed.h"

namespace carrel::policy {
namespace {

using kernel::Argument;
using kernel::Clause;
using kernel::Condition;
using kernel::equals;
using kernel::kAllowCall;
using kernel::masked_none_of;
using kernel::masked_one_of;
using kernel::one_of;
using kernel::SeccompAction;
using kernel::SyscallRules;
using kernel::Verdict;

constexpr SeccompAction kRefuse = kernel::fail_with(EPERM);
constexpr SeccompAction kAbsent = kernel::fail_with(ENOSYS);
// The bits of open's flags that make a file; O_TMPFILE has that of directories, too.
constexpr std::uint32_t kMakesFile = O_CREAT | (O_TMPFILE & ~O_DIRECTORY);

Verdict allowed_if(Condition condition) {
  return Verdict{kRefuse, {Clause{{std::move(condition)}, kAllowCall}}};
}

Verdict refused_if(Condition condition) {
  return Verdict{kAllowCall, {Clause{{std::move(condition)}, kRefuse}}};
}

// A new namespace would give back, inside it, every right that the sandbox took away.
void restrict_namespaces(SyscallRules& rules) {
  constexpr std::uint32_t kNewTime = 0x80;
  constexpr std::uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                        CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |
                                        kNewTime;
  // The kernel cuts clone's flags to 32 bits and takes all of unshare's. What unshare may split
  // off is listed, because later kernels have more ways to ask for a namespace.
  rules.set(SYS_clone, allowed_if(masked_one_of(Argument::kFirst, kNamespaces, {0})));
  rules.set(SYS_unshare, allowed_if(kernel::only_bits(
                             Argument::kFirst, CLONE_FILES | CLONE_FS | CLONE_SYSVSEM |
                                                   CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)));
}

// A filter cannot see flags behind a pointer (clone3), nor what goes through a ring (io_uring).
// Libraries do without a call that is absent, and would give up at one that is refused.
void hide_unfilterable_calls(SyscallRules& rules) {
  constexpr int kCalls[] = {SYS_clone3, SYS_io_uring_setup, SYS_io_uring_enter,
                            SYS_io_uring_register};
  rules.set(kCalls, Verdict{kAbsent, {}});
}

// Unix, internet, and the netlink protocol that lists interfaces and addresses. Netlink sockets
// are raw by convention and need no right for it; raw internet sockets stay out, as do MPTCP,
// SCTP, DCCP and UDP-Lite, which egress rules made for TCP and UDP do not cover.
void restrict_sockets(SyscallRules& rules) {
  constexpr std::uint32_t kTypeBits = 0xf;
  constexpr auto kFamily = Argument::kFirst;
  constexpr auto kType = Argument::kSecond;
  constexpr auto kProtocol = Argument::kThird;
  const Condition datagram = masked_one_of(kType, kTypeBits, {SOCK_DGRAM});
  const Verdict sockets{
      kRefuse,
      {
          Clause{{equals(kFamily, AF_NETLINK), equals(kProtocol, 0),
                  masked_one_of(kType, kTypeBits, {SOCK_RAW, SOCK_DGRAM})},
                 kAllowCall},
          Clause{{masked_none_of(kType, kTypeBits, {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET})},
                 kRefuse},
          Clause{{equals(kFamily, AF_UNIX)}, kAllowCall},
          Clause{{equals(kFamily, AF_INET), equals(kProtocol, IPPROTO_ICMP), datagram}, kAllowCall},
          Clause{{equals(kFamily, AF_INET6), equals(kProtocol, IPPROTO_ICMPV6), datagram},
                 kAllowCall},
          Clause{{one_of(kFamily, {AF_INET, AF_INET6}),
                  one_of(kProtocol, {IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP})},
                 kAllowCall},
      }};
  rules.set(SYS_socket, sockets);
  rules.set(SYS_socketpair, sockets);
}

// Requests that type into, take over or redirect a terminal, and all requests of the console's
// keyboard (0x4bxx) and screens (0x56xx).
void restrict_terminals(SyscallRules& rules) {
  rules.set(
      SYS_ioctl,
      Verdict{
          kAllowCall,
          {Clause{{one_of(Argument::kSecond, {TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS})}, kRefuse},
           Clause{{masked_one_of(Argument::kSecond, 0xffff'ff00, {0x4b00, 0x5600})}, kRefuse}}});
}

// The first process runs with the workload's own user id, so the kernel would let the workload
// set its limits (a CPU limit kills it) and its scheduling.
void protect_first_process(SyscallRules& rules) {
  rules.set(SYS_prlimit64, allowed_if(equals(Argument::kFirst, 0)));
  constexpr int kScheduling[] = {SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam,
                                 SYS_sched_setattr};
  rules.set(kScheduling, refused_if(equals(Argument::kFirst, 1)));
  // A process or a group, but not all processes of a user.
  const auto not_first = [](std::uint32_t process, std::uint32_t group) {
    return Verdict{kRefuse,
                   {Clause{{equals(Argument::kSecond, 1)}, kRefuse},
                    Clause{{one_of(Argument::kFirst, {process, group})}, kAllowCall}}};
  };
  rules.set(SYS_setpriority, not_first(0, 1));
  rules.set(SYS_ioprio_set, not_first(1, 2));
}

// A program may narrow itself further, but not become the supervisor of its own children's calls.
void restrict_self_control(SyscallRules& rules) {
  constexpr std::uint32_t kSchedCore = 62;
  rules.set(
      SYS_seccomp,
      Verdict{
          kRefuse,
          {Clause{{one_of(Argument::kFirst, {SECCOMP_SET_MODE_STRICT, SECCOMP_GET_ACTION_AVAIL})},
                  kAllowCall},
           Clause{{equals(Argument::kFirst, SECCOMP_SET_MODE_FILTER),
                   masked_one_of(Argument::kSecond, SECCOMP_FILTER_FLAG_NEW_LISTENER, {0})},
                  kAllowCall}}});
  rules.set(SYS_prctl, refused_if(one_of(Argument::kFirst, {PR_SET_MM, PR_SET_TSC, kSchedCore,
                                                            PR_SET_SECUREBITS, PR_SET_KEEPCAPS})));
  // Linux, Linux with a 32-bit address limit, either with a uname of 2.6, and the question.
  rules.set(SYS_personality,
            allowed_if(one_of(Argument::kFirst, {0, 8, 0x20000, 0x20008, 0xffff'ffff})));
}

// No device nodes, not even the 0:0 one that stands for a deleted file in an overlay.
void restrict_file_types(SyscallRules& rules) {
  const auto plain_type = [](Argument mode) {
    return allowed_if(masked_one_of(mode, S_IFMT, {0, S_IFREG, S_IFIFO, S_IFSOCK}));
  };
  constexpr std::uint32_t kRenameWhiteout = 4;
#if defined(__x86_64__)
  rules.set(SYS_mknod, plain_type(Argument::kSecond));
#endif
  rules.set(SYS_mknodat, plain_type(Argument::kThird));
  rules.set(SYS_renameat2, allowed_if(masked_one_of(Argument::kFifth, kRenameWhiteout, {0})));
}

void allow_tracing(SyscallRules& rules) {
  constexpr int kCalls[] = {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev};
  rules.set(kCalls, Verdict{kAllowCall, {}});
}

}  // namespace

SyscallRules workload_syscalls() {
  SyscallRules rules(kAbsent);
  for (const auto& known : kernel::kKnownSyscalls) {
    rules.set_range(known.first, known.last, Verdict{kRefuse, {}});
  }
  rules.set(kAllowedSyscalls, Verdict{kAllowCall, {}});
  restrict_namespaces(rules);
  hide_unfilterable_calls(rules);
  restrict_sockets(rules);
  restrict_terminals(rules);
  protect_first_process(rules);
  restrict_self_control(rules);
  restrict_file_types(rules);
  return rules;
}

SyscallRules without_set_id(SyscallRules rules) {
  constexpr std::uint32_t kSetId = S_ISUID | S_ISGID;
  const auto plain_mode = [](Argument mode) { return masked_one_of(mode, kSetId, {0}); };
  rules.set(SYS_fchmod, allowed_if(plain_mode(Argument::kSecond)));
  rules.set(SYS_fchmodat, allowed_if(plain_mode(Argument::kThird)));
  rules.set(SYS_fchmodat2, allowed_if(plain_mode(Argument::kThird)));
  // The mode means something only where a file is made; else it is whatever was in the register.
  const auto opened = [&](Argument flags, Argument mode) {
    return Verdict{kRefuse,
                   {Clause{{masked_one_of(flags, kMakesFile, {0})}, kAllowCall},
                    Clause{{plain_mode(mode)}, kAllowCall}}};
  };
  rules.set(SYS_openat, opened(Argument::kThird, Argument::kFourth));
  const auto node = [&](Argument mode) {
    return Verdict{
        kRefuse,
        {Clause{{masked_one_of(mode, S_IFMT, {0, S_IFREG, S_IFIFO, S_IFSOCK}), plain_mode(mode)},
                kAllowCall}}};
  };
  rules.set(SYS_mknodat, node(Argument::kThird));
#if defined(__x86_64__)
  rules.set(SYS_chmod, allowed_if(plain_mode(Argument::kSecond)));
  rules.set(SYS_creat, allowed_if(plain_mode(Argument::kSecond)));
  rules.set(SYS_open, opened(Argument::kSecond, Argument::kThird));
  rules.set(SYS_mknod, node(Argument::kSecond));
#endif
  // Its mode is behind a pointer.
  rules.set(SYS_openat2, Verdict{kAbsent, {}});
  return rules;
}

SyscallRules debug_syscalls() {
  SyscallRules rules = workload_syscalls();
  allow_tracing(rules);
  return rules;
}

SyscallRules without_signals_to_first(SyscallRules rules) {
  constexpr int kCalls[] = {
      SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open};
  rules.set(kCalls, refused_if(equals(Argument::kFirst, 1)));
  // Who is signalled for a descriptor: never the first process or its group, and nobody who is
  // named behind a pointer.
  constexpr std::uint32_t kItsGroup = 0xffff'ffff;
  rules.set(SYS_fcntl, Verdict{kAllowCall,
                               {Clause{{equals(Argument::kSecond, F_SETOWN),
                                        one_of(Argument::kThird, {1, kItsGroup})},
                                       kRefuse},
                                Clause{{equals(Argument::kSecond, F_SETOWN_EX)}, kRefuse}}});
  Verdict requests = rules.verdict(SYS_ioctl);
  requests.clauses.push_back(Clause{{one_of(Argument::kSecond, {FIOSETOWN, SIOCSPGRP})}, kRefuse});
  rules.set(SYS_ioctl, requests);
  return rules;
}

SyscallRules guest_syscalls() {
  SyscallRules rules = workload_syscalls();
  constexpr int kCalls[] = {SYS_prlimit64,      SYS_sched_setaffinity, SYS_sched_setscheduler,
                            SYS_sched_setparam, SYS_sched_setattr,     SYS_setpriority,
                            SYS_ioprio_set,     SYS_seccomp,           SYS_syncfs};
  rules.set(kCalls, Verdict{kAllowCall, {}});
  return rules;
}

SyscallRules debug_guest_syscalls() {
  SyscallRules rules = guest_syscalls();
  allow_tracing(rules);
  return rules;
}

}  // namespace carrel::policy
