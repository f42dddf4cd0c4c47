#pragma once

#include "cli/context.h"
#include "policy/spec.h"
#include "sandbox/command.h"

namespace carrel::cli {

// Runs the command in a fresh sandbox in the foreground and returns the exit status. `input` is a
// descriptor whose bytes become its stdin, or -1.
int run_in_new_sandbox(const Context& context, const policy::Spec& spec,
                       sandbox::CommandRequest command, int input);

}  // namespace carrel::cli
