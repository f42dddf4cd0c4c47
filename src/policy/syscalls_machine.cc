#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls.h"

namespace carrel::policy {

namespace {

using kernel::Argument;
using kernel::kAllowCall;
using kernel::Verdict;

// Bytes between sockets that are open, files that are read, memory, its own end.
constexpr int kBesideMachine[] = {
    SYS_read,          SYS_readv,
    SYS_write,         SYS_writev,
    SYS_pread64,       SYS_recvfrom,
    SYS_recvmsg,       SYS_sendto,
    SYS_sendmsg,       SYS_poll,
    SYS_ppoll,         SYS_accept4,
    SYS_close,         SYS_lseek,
    SYS_fstat,         SYS_newfstatat,
    SYS_statx,         SYS_openat2,
    SYS_getdents64,    SYS_readlinkat,
    SYS_fcntl,         SYS_brk,
    SYS_munmap,        SYS_mremap,
    SYS_madvise,       SYS_futex,
    SYS_getpid,        SYS_gettid,
    SYS_rt_sigreturn,  SYS_sigaltstack,
    SYS_getrandom,     SYS_exit,
    SYS_clock_gettime, SYS_rt_sigprocmask,
    SYS_exit_group,    SYS_restart_syscall,
};

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

}  // namespace carrel::policy
