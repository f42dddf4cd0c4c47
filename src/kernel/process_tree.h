#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace carrel::kernel {

// What a process and everything below it use now, from /proc. For hosts where no control group
// counts; a process that ends while it is looked at is left out.
struct TreeUsage {
  std::uint64_t processes = 0;
  std::uint64_t memory_bytes = 0;  // resident; pages that two processes share count twice
  std::uint64_t cpu_usec = 0;      // of the processes that live
};

// Whether a process runs no more, its status asked for or not.
bool has_ended(pid_t process);

Result<TreeUsage> usage_of_tree(pid_t root);

}  // namespace carrel::kernel
