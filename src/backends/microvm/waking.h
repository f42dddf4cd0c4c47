#pragma once

#include <chrono>
#include <string>

// The host's first words to a machine, over its serial line: see protocol/awakening.h.
namespace carrel::microvm {

struct Sleeper {
  int line = -1;  // does not block
  int vmm = -1;   // pidfd
  std::chrono::steady_clock::time_point late;
};

// kEnded: the machine has, or said something else than it should.
enum class Woken { kYes, kEnded, kLate };

// Asks whether the machine waits, until it does. It has nothing of a sandbox's then.
Woken await_sleeper(const Sleeper& sleeper);
// That, and wakes it: with random bytes, the time, and these terms of its sandbox.
Woken wake(const Sleeper& sleeper, const std::string& terms);

}  // namespace carrel::microvm
