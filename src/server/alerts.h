#pragma once

#include <atomic>
#include <cstdint>

#include "server/alert_rules.h"
#include "storage/home.h"

namespace carrel::server {

// Reads the logs of events and of network decisions as they grow, and writes an event `alert` where
// there is too much of what should not happen. It sees what happens while there is a daemon.
class Alerts {
 public:
  // `refused` counts requests that were refused and belong to no sandbox. Both are borrowed.
  Alerts(const storage::Home& home, const std::atomic<std::uint64_t>& refused)
      : home_(home), refused_(refused) {}

  // Until `stopping` is true.
  void run(const std::atomic<bool>& stopping);
  [[nodiscard]] std::uint64_t raised() const { return raised_; }

 private:
  void note(const Incident& incident);
  void raise(const Alert& alert);

  const storage::Home& home_;
  const std::atomic<std::uint64_t>& refused_;
  AlertRules rules_;
  std::atomic<std::uint64_t> raised_ = 0;
};

}  // namespace carrel::server
