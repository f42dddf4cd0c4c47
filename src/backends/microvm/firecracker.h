#pragma once

#include <memory>
#include <string>

#include "backends/microvm/vmm.h"

namespace carrel::microvm {

// Firecracker of this host. kUnsupported: it is not installed, or is too old to tell a machine of
// its devices by ACPI, which is how Debian's kernels find them.
Result<std::unique_ptr<Vmm>> find_firecracker();

// Its settings: the file that takes the place of its API.
std::string firecracker_settings(const MachineTerms& terms);

}  // namespace carrel::microvm
