#include "backends/microvm/vmm.h"

#include "backends/microvm/qemu.h"

namespace carrel::microvm {

Result<std::unique_ptr<Vmm>> find_vmm(const std::string& runtime) {
  if (runtime.empty() || runtime == "qemu") {
    return find_qemu();
  }
  return Error{Code::kUnsupported, 0,
               "machines are made by 'qemu' in this version, not by '" + runtime + "'",
               "leave out --runtime"};
}

}  // namespace carrel::microvm
