#pragma once

#include "kernel/seccomp.h"

namespace carrel::kernel {

// Runs a program on one call as the kernel would, without loading it: for tests, and to explain
// what a filter says. It knows the instructions that compile() emits; on anything else, on a jump
// or a load out of bounds, or without a return, the answer is kKillProcess.
SeccompAction evaluate(const SeccompProgram& program, const seccomp_data& call);

}  // namespace carrel::kernel
