#pragma once

#include "backends/native/enforcement.h"
#include "backends/native/nursery.h"
#include "base/result.h"
#include "policy/spec.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "storage/home.h"

namespace carrel::native {

// Runs one command in a sandbox of its own and removes the sandbox, whatever happens. It needs no
// keeper and no database: its record is its control group and a locked file, and if this process
// dies, its stream closes and the guest ends everything.
struct OneShot {
  policy::Spec spec;
  sandbox::CommandRequest command;
};

// Called once the sandbox is known to be enforceable, before the command runs.
using EnforcementListener = std::function<void(const Enforcement&)>;

// With a lender the sandbox's first process is borrowed, where he has one.
Result<sandbox::ExecResult> run_once(storage::Home& home, const OneShot& job,
                                     const sandbox::CommandIo& io,
                                     const EnforcementListener& listener,
                                     Lender* lender = nullptr);

}  // namespace carrel::native
