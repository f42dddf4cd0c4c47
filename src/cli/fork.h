#pragma once

#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "storage/home.h"

namespace carrel::cli {

// Makes a sandbox that continues from a snapshot of what the word names, or from what it is now if
// `from` is empty; returns its id. Takes --name and --workspace. CRITICAL: no database may be open.
Result<std::string> make_fork(const Context& context, storage::Home& home, const std::string& named,
                              const std::string& from);

}  // namespace carrel::cli
