#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "storage/home.h"

namespace carrel::cli {

// The snapshot that a fork begins with; empty: one that is taken now.
struct ForkStart {
  std::string snapshot;
  enum class Said { kByAPerson, kByARecord } said = Said::kByAPerson;  // a record says a whole id
  std::uint64_t most = UINT64_MAX;  // that one that is taken now may take of the disk
};

// Makes a sandbox that continues from a snapshot of what the word names; returns its id. Takes
// --name, --workspace and --for. A workspace that nobody named goes with the sandbox. CRITICAL: no
// database may be open.
Result<std::string> make_fork(const Context& context, storage::Home& home, const std::string& named,
                              const ForkStart& from);

}  // namespace carrel::cli
