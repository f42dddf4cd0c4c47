#pragma once

#include <string>
#include <vector>

namespace carrel::microvm {

// Becomes a VMM. `descriptors` become 3 and what follows; -1: there is none of that number. Nothing
// else stays open but the standard ones.
[[noreturn]] void execute_vmm(const std::vector<std::string>& command,
                              const std::vector<int>& descriptors);

}  // namespace carrel::microvm
