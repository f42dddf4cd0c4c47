#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/box.h"

namespace carrel::native {

// The /workspace of a long-lived sandbox that has it in memory, open for reading: the kernel's own
// directory, whoever the sandbox's processes have become. What is in it is hostile. An ordinary
// user has to do this in the user namespace in which he made the sandbox.
Result<UniqueFd> open_memory_workspace(const storage::BoxRecord& record);

}  // namespace carrel::native
