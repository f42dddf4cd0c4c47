#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backends/microvm/boot_files.h"
#include "backends/microvm/vmm.h"

namespace carrel::microvm {

struct Acceleration {
  Accelerator accelerator = Accelerator::kEmulated;
  std::string why_emulated;
  std::string said;                    // by a VMM that could not make a machine with KVM
  std::optional<std::uint32_t> group;  // as root: the group that may use the device
};

// Whether KVM works here. That a device can be opened says little, so a kernel is booted once with
// a deadline, and what came of it is remembered until the host boots again. CARREL_VM_ACCELERATOR
// ("kvm" or "tcg") decides instead.
Acceleration find_acceleration(const Vmm& vmm, const BootKernel& kernel);

}  // namespace carrel::microvm
