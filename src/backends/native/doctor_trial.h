#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <new>

#include "backends/native/doctor_probe_child.h"

namespace carrel::native {

// A TrialBoard in memory that forked processes share. Without memory there is none: get() is null.
class SharedBoard {
 public:
  SharedBoard();
  ~SharedBoard();
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  [[nodiscard]] TrialBoard* get() const { return board_; }
  // Copies the outcomes that are known to `outcomes`.
  void report(FeatureOutcomes& outcomes) const;

 private:
  TrialBoard* board_ = nullptr;
};

// Waits until the trial's process has ended; kills it when that takes longer. Returns whether it
// ended by itself.
enum class TrialEnd { kByItself, kKilled };
TrialEnd end_trial(pid_t pid, int patience_ms);

}  // namespace carrel::native
