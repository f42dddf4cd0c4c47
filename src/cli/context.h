#pragma once

#include <string>

#include "cli/args.h"

namespace carrel::cli {

// One invocation: what was asked, as far as every command needs it.
struct Context {
  const Arguments& arguments;

  [[nodiscard]] bool json() const { return arguments.has(OptionId::kJson); }
};

// Each returns the exit status.
int run_command(const Context& context);
int code_command(const Context& context);

}  // namespace carrel::cli
