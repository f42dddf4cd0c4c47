#pragma once

#include <memory>

#include "backends/microvm/vmm.h"

namespace carrel::microvm {

// QEMU of this host. kUnsupported: it is not installed.
Result<std::unique_ptr<Vmm>> find_qemu();

}  // namespace carrel::microvm
