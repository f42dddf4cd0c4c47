#pragma once

#include "backends/microvm/waking.h"
#include "base/result.h"

namespace carrel::microvm {

// Writes a machine that waits for its first words to a file, by QEMU's monitor (QMP). Only the
// process that calls this has the other end of the monitor; the machine never runs anything of a
// sandbox, and ends with that process.
struct SaveTerms {
  Sleeper sleeper;
  int monitor = -1;
  int file = -1;
};
Status save_machine(const SaveTerms& terms);

}  // namespace carrel::microvm
