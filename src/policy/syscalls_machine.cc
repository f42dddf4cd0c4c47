#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls.h"

namespace carrel::policy {

namespace {

using kernel::Argument;
using kernel::kAllowCall;
using kernel::Verdict;

// Bytes between sockets that are open, files that are read, memory, its own end.
constexpr int kBesideMachine[] = {
#ifdef SYS_poll  // newer architectures have ppoll alone
    SYS_poll,
#endif
    SYS_read,     SYS_readv,         SYS_write,          SYS_writev,      SYS_pread64,
    SYS_recvfrom, SYS_recvmsg,       SYS_sendto,         SYS_sendmsg,     SYS_ppoll,
    SYS_accept4,  SYS_close,         SYS_lseek,          SYS_fstat,       SYS_newfstatat,
    SYS_statx,    SYS_openat2,       SYS_getdents64,     SYS_readlinkat,  SYS_fcntl,
    SYS_brk,      SYS_munmap,        SYS_mremap,         SYS_madvise,     SYS_futex,
    SYS_getpid,   SYS_gettid,        SYS_rt_sigreturn,   SYS_sigaltstack, SYS_getrandom,
    SYS_exit,     SYS_clock_gettime, SYS_rt_sigprocmask, SYS_exit_group,  SYS_restart_syscall,
};

// What changes a tree beneath a folder, and what is read of it.
constexpr int kWritesForMachine[] = {
    SYS_pwrite64,  SYS_ftruncate,  SYS_fallocate, SYS_fsync,        SYS_fdatasync, SYS_utimensat,
    SYS_symlinkat, SYS_linkat,     SYS_unlinkat,  SYS_fstatfs,      SYS_fgetxattr, SYS_fsetxattr,
    SYS_geteuid,   SYS_flistxattr, SYS_getegid,   SYS_fremovexattr,
};

Verdict allowed_if(kernel::Condition condition) {
  return Verdict{kernel::fail_with(EPERM), {{{std::move(condition)}, kAllowCall}}};
}

}  // namespace

kernel::SyscallRules beside_machine_syscalls() {
  kernel::SyscallRules rules(kernel::fail_with(EPERM));
  rules.set(kBesideMachine, Verdict{kAllowCall, {}});
  const Verdict without_exec{
      kernel::fail_with(EPERM),
      {{{kernel::masked_one_of(Argument::kThird, PROT_EXEC, {0})}, kAllowCall}}};
  rules.set(SYS_mmap, without_exec);
  rules.set(SYS_mprotect, without_exec);
  return rules;
}

kernel::SyscallRules connects_machine_syscalls() {
  kernel::SyscallRules rules = beside_machine_syscalls();
  rules.set(SYS_socketpair, allowed_if(kernel::equals(Argument::kFirst, AF_UNIX)));
  rules.set(SYS_shutdown, Verdict{kAllowCall, {}});
  return rules;
}

kernel::SyscallRules writes_for_machine_syscalls() {
  kernel::SyscallRules rules = beside_machine_syscalls();
  rules.set(kWritesForMachine, Verdict{kAllowCall, {}});
  constexpr std::uint32_t kSetId = S_ISUID | S_ISGID;
  const kernel::Condition plain = kernel::masked_one_of(Argument::kThird, kSetId, {0});
  rules.set(SYS_fchmodat, allowed_if(plain));
  rules.set(SYS_mkdirat, allowed_if(plain));
  rules.set(SYS_mknodat, allowed_if(kernel::masked_one_of(Argument::kThird, kSetId | S_IFMT,
                                                          {S_IFREG, S_IFIFO, S_IFSOCK})));
  rules.set(SYS_renameat2,
            allowed_if(kernel::only_bits(Argument::kFifth, RENAME_NOREPLACE | RENAME_EXCHANGE)));
  return rules;
}

}  // namespace carrel::policy
