#pragma once

#include <linux/filter.h>

#include <vector>

#include "kernel/seccomp_rules.h"

namespace carrel::kernel {

// A filter as the kernel takes it. A value: it can be copied, and sent to another process.
struct SeccompProgram {
  std::vector<sock_filter> instructions;

  // The form that load_seccomp_child() takes. It points into this program.
  [[nodiscard]] sock_fprog view() const;
};

// Translates rules into a short program: the kernel takes about a microsecond for each instruction
// when it loads one, and it is loaded at every start. The architecture and the x32 bit are checked
// first, then the number is searched in a tree of ranges with equal verdicts, then the arguments.
// Clauses that end alike share their instructions.
SeccompProgram compile(const SyscallRules& rules);

// Puts the calling thread, and everything it starts, under the program for good; returns 0 or an
// errno. For use between clone and exec: no heap, no locks. CRITICAL: PR_SET_NO_NEW_PRIVS has to
// be set first, else a caller without CAP_SYS_ADMIN gets EACCES and no filter.
[[nodiscard]] int load_seccomp_child(const sock_fprog& program) noexcept;

}  // namespace carrel::kernel
