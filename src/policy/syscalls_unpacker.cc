#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

#include "kernel/uapi/syscall_numbers.h"
#include "policy/syscalls.h"

namespace carrel::policy {

namespace {

using kernel::Argument;
using kernel::kAllowCall;
using kernel::Verdict;

// Reading, writing, and the tree of files that it makes; memory; its own end.
constexpr int kUnpacker[] = {
    SYS_read,          SYS_readv,          SYS_write,     SYS_writev,     SYS_pwrite64,
    SYS_lseek,         SYS_close,          SYS_fstat,     SYS_newfstatat, SYS_statx,
    SYS_readlinkat,    SYS_getdents64,     SYS_symlinkat, SYS_linkat,     SYS_unlinkat,
    SYS_ftruncate,     SYS_utimensat,      SYS_fsync,     SYS_fcntl,      SYS_brk,
    SYS_munmap,        SYS_mremap,         SYS_madvise,   SYS_futex,      SYS_rt_sigreturn,
    SYS_sigaltstack,   SYS_rt_sigprocmask, SYS_getrandom, SYS_getpid,     SYS_gettid,
    SYS_clock_gettime, SYS_sched_yield,    SYS_exit,      SYS_exit_group,
};

Verdict allowed_without(Argument argument, std::uint32_t bits) {
  return Verdict{kernel::fail_with(EPERM),
                 {{{kernel::masked_one_of(argument, bits, {0})}, kAllowCall}}};
}

}  // namespace

kernel::SyscallRules unpacker_syscalls() {
  kernel::SyscallRules rules(kernel::fail_with(EPERM));
  rules.set(kUnpacker, Verdict{kAllowCall, {}});
  // No file that it makes can lend its owner's rights, and nothing that it reads is executed.
  constexpr std::uint32_t kSetId = S_ISUID | S_ISGID;
  rules.set(SYS_openat, allowed_without(Argument::kFourth, kSetId));
  rules.set(SYS_mkdirat, allowed_without(Argument::kThird, kSetId));
  rules.set(SYS_fchmod, allowed_without(Argument::kSecond, kSetId));
  rules.set(SYS_mmap, allowed_without(Argument::kThird, PROT_EXEC));
  rules.set(SYS_mprotect, allowed_without(Argument::kThird, PROT_EXEC));
  return rules;
}

}  // namespace carrel::policy
