#pragma once

#include "base/result.h"
#include "cli/context.h"
#include "policy/spec.h"
#include "storage/home.h"

namespace carrel::cli {

// With --workspace-from: makes the spec's workspace as a copy of that directory. Without a name for
// it, it gets one. Says on stderr what was left out.
Status copy_source(const Context& context, const storage::Home& home, policy::Spec& spec);

}  // namespace carrel::cli
