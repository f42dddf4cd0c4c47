#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::journal {

// Who is at an execution: a lock on flows/EXECUTION, which the run and what it started hold
// until they end, however they end.

// Takes it. kConflict when another process has it; what a dead run has started is waited for.
Result<UniqueFd> claim(const storage::Home& home, const std::string& execution);
// The same without waiting: not valid if anybody has it.
UniqueFd try_claim(const storage::Home& home, const std::string& execution);
bool is_claimed(const storage::Home& home, const std::string& execution);
// Gives it back, and the file goes.
void release(const storage::Home& home, const std::string& execution, UniqueFd owner);

}  // namespace carrel::journal
