#include <linux/netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls.h"

namespace carrel::policy {

namespace {

using kernel::Argument;
using kernel::Clause;
using kernel::equals;
using kernel::kAllowCall;
using kernel::one_of;
using kernel::Verdict;

// Connections and what is told about them, a few small files, memory, time; its own end. It starts
// nobody and signals nobody.
constexpr int kEgress[] = {
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_connect,
    SYS_accept4,
    SYS_shutdown,
    SYS_bind,
    SYS_listen,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_splice,
    SYS_pipe2,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_ppoll,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_ftruncate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_fcntl,
    SYS_faccessat,
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_futex,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_geteuid,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_sched_yield,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_pwrite64,
#ifdef SYS_epoll_wait  // what libraries still call on x86
    SYS_epoll_wait,
    SYS_poll,
    SYS_rename,
    SYS_unlink,
    SYS_rmdir,
#endif
};

Verdict allowed_without(Argument argument, std::uint32_t bits) {
  return Verdict{kernel::fail_with(EPERM),
                 {{{kernel::masked_one_of(argument, bits, {0})}, kAllowCall}}};
}

}  // namespace

kernel::SyscallRules egress_syscalls() {
  kernel::SyscallRules rules(kernel::fail_with(EPERM));
  rules.set(kEgress, Verdict{kAllowCall, {}});
  rules.set(
      SYS_socket,
      Verdict{
          kernel::fail_with(EPERM),
          {Clause{{one_of(Argument::kFirst, {AF_UNIX, AF_INET, AF_INET6})}, kAllowCall},
           Clause{{equals(Argument::kFirst, AF_NETLINK), equals(Argument::kThird, NETLINK_ROUTE)},
                  kAllowCall}}});
  constexpr std::uint32_t kSetId = S_ISUID | S_ISGID;
  rules.set(SYS_openat, allowed_without(Argument::kFourth, kSetId));
  rules.set(SYS_mkdirat, allowed_without(Argument::kThird, kSetId));
  rules.set(SYS_fchmod, allowed_without(Argument::kSecond, kSetId));
  rules.set(SYS_mmap, allowed_without(Argument::kThird, PROT_EXEC));
  rules.set(SYS_mprotect, allowed_without(Argument::kThird, PROT_EXEC));
#ifdef SYS_open
  rules.set(SYS_open, allowed_without(Argument::kThird, kSetId));
#endif
  return rules;
}

}  // namespace carrel::policy
