#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::microvm {

// What makes a machine: the seam behind which a VMM is. A VMM gets the machine's terms as its
// arguments, reads its kernel from a file, has a serial line and a read-only block device by
// descriptor, and no way to be talked to otherwise, unless it has no sandbox and is to be saved.
enum class Accelerator { kKvm, kEmulated };

// kSaves: it boots, and has a monitor by descriptor; it is for nobody, and saved. kRestores: it
// goes on from what was saved, and reads that from a descriptor.
enum class MachineStart { kBoots, kSaves, kRestores };

struct MachineTerms {
  MachineStart start = MachineStart::kBoots;
  Accelerator accelerator = Accelerator::kEmulated;
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpus = 1;
};

struct Vmm {
  std::string path;
  std::string version;  // "QEMU 7.2.22"
};

// QEMU of this host. Not by the caller's PATH. kUnsupported: it is not installed.
Result<Vmm> find_qemu();

// Its arguments, beginning with its path.
std::vector<std::string> qemu_arguments(const Vmm& vmm, const MachineTerms& terms);
// Of a machine that only boots its kernel, which has nothing to run and gives up: QEMU ends then.
std::vector<std::string> probe_arguments(const Vmm& vmm);

// Paths of the host that QEMU reads, with the accelerator's device.
std::vector<std::string> needed_by(const Vmm& vmm, Accelerator accelerator);

}  // namespace carrel::microvm
