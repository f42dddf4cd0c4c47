#pragma once

#include <cstddef>
#include <cstdint>

#include "guest/root.h"

// What the sandbox holds, where no control group counts it. A look every now and then, for the
// accidents that a limit is for. It cannot see into a process that hides its descriptors, and it
// counts none of the kernel's own tables but page tables.
namespace carrel::guest {

struct MemoryUse {
  std::uint64_t anonymous = 0;  // private memory and page tables, all processes but the guest
  std::uint64_t mapped = 0;     // shared memory as it is mapped
  std::uint64_t lasting = 0;    // files in the sandbox's tmpfs mounts, System V: outlives its maker
  std::uint64_t held = 0;       // memory files
  std::uint64_t buffers = 0;    // of pipes that are not empty, and of sockets: at most this
  std::size_t tasks = 0;        // processes and threads, the guest included

  // Shared memory is seen where it is mapped and where it is held: the larger one is real.
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t kept = lasting + held;
    return anonymous + buffers + (mapped > kept ? mapped : kept);
  }
};

// A quick look counts memory that processes share, for instance after a fork, once for each of
// them. An exact one divides it, and takes as long as there is memory. gVisor's kernel knows how
// much it has given out, and nothing of it for each process.
enum class Look { kQuick, kExact, kKernels };
MemoryUse look_at_memory(const BuiltRoot& root, Look look);

// Whether one of the root's file systems in memory has no room for one more page, or file.
bool is_full(const BuiltRoot& root);

}  // namespace carrel::guest
