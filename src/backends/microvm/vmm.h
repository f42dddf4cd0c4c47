#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/microvm/boot_files.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::microvm {

// What makes a machine: the seam behind which a VMM is. A VMM gets the machine's terms as its
// arguments, reads its kernel from a file, has a line to the machine's first process and a
// read-only block device, and no way to be talked to otherwise, unless it has no sandbox and is to
// be saved.
enum class Accelerator { kKvm, kEmulated };

// kSaves: it boots, and has a monitor by descriptor; it is for nobody, and saved. kRestores: it
// goes on from what was saved, and reads that from a descriptor.
enum class MachineStart { kBoots, kSaves, kRestores };

struct MachineTerms {
  Accelerator accelerator = Accelerator::kEmulated;
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpus = 1;
  MachineStart start = MachineStart::kBoots;
};

// How a VMM is given the line and the block device.
enum class Supply {
  kDescriptors,  // a stream of bytes for a serial port, and a server of blocks
  kFiles,        // a socket that it connects to when the machine does, and a file
};

// How a VMM is started, and what it finds: see hall.h for the places and the descriptors.
struct VmmStart {
  std::vector<std::string> arguments;  // beginning with its path
  std::vector<std::string> needed;     // paths of the host that it reads, with devices
  std::string settings;                // what is in its file of settings; empty: it has none
};

class Vmm {
 public:
  virtual ~Vmm() = default;

  std::string name;  // as a runtime's
  std::string path;
  std::string version;  // "QEMU 7.2.22"
  std::string caveat;   // what whoever uses it has to know; empty: nothing
  Supply supply = Supply::kDescriptors;
  // Whether it can do without KVM.
  enum class Emulation { kPossible, kImpossible } emulation = Emulation::kPossible;
  // Whether it can save a machine, and go on from there.
  enum class Saving { kPossible, kImpossible } saving = Saving::kImpossible;

  [[nodiscard]] virtual VmmStart machine(const MachineTerms& terms) const = 0;
  // Of a machine that only boots its kernel, with KVM, which has nothing to run and gives up: the
  // VMM ends then, with success.
  [[nodiscard]] virtual VmmStart probe() const = 0;
  // What this host has to have for it, beside KVM; kUnsupported: what is missing.
  [[nodiscard]] virtual Status check_host() const { return {}; }
  // The kernel's file as this VMM loads it.
  [[nodiscard]] virtual Result<UniqueFd> open_kernel(const BootKernel& kernel) const = 0;
};

// The VMM of this host that the name of a runtime means; empty: QEMU. Not by the caller's PATH.
// kUnsupported: there is none of that name, or it is not installed.
Result<std::unique_ptr<Vmm>> find_vmm(const std::string& runtime);

}  // namespace carrel::microvm
