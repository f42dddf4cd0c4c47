#pragma once

#include <sys/timerfd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/native/creation.h"
#include "backends/native/keeper_message.h"
#include "backends/native/warm_box.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/spec.h"
#include "storage/home.h"
#include "storage/open_state.h"

namespace carrel::native {

// The sandboxes that the keeper keeps warm for this program. They are there as long as this program
// holds its connection to the keeper: whatever ends either of the two ends them. Where the two
// processes are at the same place, the keeper gives them away, and this one finishes them itself.
class WarmSupply {
 public:
  // `likely` is what will most likely be asked for.
  WarmSupply(storage::Home& home, std::size_t count, policy::Spec likely)
      : home_(&home),
        count_(count),
        likely_(std::move(likely)),
        rows_(home),
        later_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {}

  // Asks the keeper for them and hears of them, until `stopping`. For a thread of its own; returns
  // at once when none is wanted.
  void run(const std::atomic<bool>& stopping);

  struct Ready {
    std::string id;
    std::optional<WarmBox> box;  // none: the keeper has it
  };
  // One that nobody else gets, if there is one that can become a sandbox with these settings.
  std::optional<Ready> take(const policy::Spec& wanted);
  // It was not asked for after all.
  void put_back(Ready ready);
  // Makes of it what is asked for. kUnavailable: a new one has to be made.
  Result<Creation::Finished> finish(WarmBox box, CreateRequest request);
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
  Status hear();
  Status prepare(WarmBox& box);
  // Whether one that has locked itself in may do.
  [[nodiscard]] bool is_usual(const policy::Spec& wanted) const;
  // Whether one more may be locked in. With the mutex held.
  [[nodiscard]] bool may_lock() const;
  void drop_outdated();
  void tell_taken();
  void forget();

  storage::Home* home_;
  std::size_t count_;
  policy::Spec likely_;
  storage::OpenState rows_;
  mutable std::mutex mutex_;
  std::list<Ready> ready_;
  UniqueFd keeper_;  // to tell it what was taken
  UniqueFd later_;   // when to: whoever took one has the processors first
  std::vector<std::string> taken_;
  UniqueFd mounts_;  // the list of this process's mounts
  bool lock_fails_ = false;
  std::atomic<std::uint64_t> hits_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
};

}  // namespace carrel::native
