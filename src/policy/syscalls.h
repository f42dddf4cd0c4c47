#pragma once

#include "kernel/seccomp_rules.h"

namespace carrel::policy {

// Which system calls may be made inside a sandbox. All of these are allow-lists: what is known and
// not listed fails with EPERM, and a number that is newer than this program with ENOSYS, so that
// libraries fall back. Filters stack and the strictest answer counts, therefore the guest, which
// starts the commands, has to be allowed whatever they are.

// For the commands that nobody has read.
kernel::SyscallRules workload_syscalls();

// What a command may not do where its files outlive it on the host: give a file the rights of its
// owner or its group. The host would honour that, and the mounts' own nosuid counts only inside.
kernel::SyscallRules without_set_id(kernel::SyscallRules rules);

// Where the kernel lets a command signal the first process as any other, as gVisor's does: none of
// the calls that name it.
kernel::SyscallRules without_signals_to_first(kernel::SyscallRules rules);

// The same with ptrace and the reading and writing of another process's memory, for debuggers. It
// is safe only in a PID namespace of its own, with a first process that is not dumpable.
kernel::SyscallRules debug_syscalls();

// For the guest, the first process in the sandbox: what a workload may do, and the limits and
// scheduling of any process.
kernel::SyscallRules guest_syscalls();

// For the guest of a sandbox whose commands run under debug_syscalls().
kernel::SyscallRules debug_guest_syscalls();

// For the process that takes an archive apart: its input, files below one directory, and nothing
// else. No exec, no socket, no process, no device, no set-id bit.
kernel::SyscallRules unpacker_syscalls();
// Those of the egress process: the network, its own few files, and nobody else.
kernel::SyscallRules egress_syscalls();

// Those of the two processes of Carrel's that stand beside a virtual machine, one that carries
// bytes and one that reads files for it. No exec, no process, no new socket, nothing is written to
// but what is open.
kernel::SyscallRules beside_machine_syscalls();
// The same of one that hands connections on.
kernel::SyscallRules connects_machine_syscalls();
// Those of the one that changes files for it, beneath folders that are open: no device, no set-id
// bit, no owner.
kernel::SyscallRules writes_for_machine_syscalls();

}  // namespace carrel::policy
