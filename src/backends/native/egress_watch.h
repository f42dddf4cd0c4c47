#pragma once

#include <chrono>

#include "storage/home.h"

namespace carrel::native {

// Brings the egress process back when it is gone together with the one above it, which would have
// started the next. A sandbox has no network until then. For somebody who lives as long as
// sandboxes with a network do.
class EgressWatch {
 public:
  explicit EgressWatch(const storage::Home& home) : home_(&home) {}

  // Milliseconds until it is time to look.
  [[nodiscard]] int time_left() const;
  // Looks, if it is time. Nobody waits for a process that is started here; one that does not stay
  // is started less and less often.
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  const storage::Home* home_;
  Clock::time_point due_ = Clock::now();
  std::chrono::milliseconds pause_{};
  bool missing_ = false;  // when it was looked for the last time
};

}  // namespace carrel::native
