#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

// The sandboxes that the keeper keeps warm for this program, by their ids. They are there as long
// as this program holds its connection to the keeper: whatever ends either of the two ends them.
class WarmSupply {
 public:
  WarmSupply(const storage::Home& home, std::size_t count) : home_(&home), count_(count) {}

  // Asks the keeper for them and hears of them, until `stopping`. For a thread of its own; returns
  // at once when none is wanted.
  void run(const std::atomic<bool>& stopping);

  // One that nobody else gets, if there is one.
  std::optional<std::string> take();
  // It was not asked for after all.
  void put_back(std::string id);
  // How a sandbox was made that could have been one of them.
  enum class Outcome { kHit, kMiss };
  void note(Outcome outcome);

  struct Counts {
    std::size_t wanted = 0;
    std::size_t ready = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  void listen(const std::atomic<bool>& stopping);
  void forget();

  const storage::Home* home_;
  std::size_t count_;
  mutable std::mutex mutex_;
  std::deque<std::string> ready_;
  std::atomic<std::uint64_t> hits_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
};

}  // namespace carrel::native
