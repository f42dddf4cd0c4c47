#pragma once

#include "base/result.h"
#include "cli/args.h"
#include "policy/settings.h"
#include "policy/spec.h"

namespace carrel::cli {

// The sandbox that was asked for: the defaults, over them carrel.toml (of --config, or the one in
// the current directory), over them the options; checked against this host.
Result<policy::Spec> sandbox_spec(const Arguments& arguments, policy::Operation operation);

}  // namespace carrel::cli
