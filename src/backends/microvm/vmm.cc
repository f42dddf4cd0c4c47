#include "backends/microvm/vmm.h"

#include "backends/microvm/firecracker.h"
#include "backends/microvm/qemu.h"

namespace carrel::microvm {

Result<std::unique_ptr<Vmm>> find_vmm(const std::string& runtime) {
  if (runtime.empty() || runtime == "qemu") {
    return find_qemu();
  }
  if (runtime == "firecracker") {
    return find_firecracker();
  }
  return Error{Code::kUnsupported, 0,
               "machines are made by 'qemu' or 'firecracker', not by '" + runtime + "'",
               "leave out --runtime"};
}

}  // namespace carrel::microvm
