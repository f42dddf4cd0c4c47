#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>

#include "backends/native/scope.h"
#include "backends/native/warm_box.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

inline constexpr std::size_t kMostWarm = 64;

// The sandboxes that a keeper has ready for others: see docs/decisions/0027. Each is given away
// once. What is missing is made later, one at a time, when whoever took the last one has done with
// the processors.
class WarmPool {
 public:
  // Made in `scope`, if there is one.
  WarmPool(storage::Home& home, const OwnScope& scope) : home_(&home), scope_(&scope) {}

  // How many there should be from now on. What is too much goes at once.
  void want(std::size_t count);
  [[nodiscard]] bool is_wanted() const { return wanted_ > 0; }
  [[nodiscard]] const std::list<WarmBox>& boxes() const { return boxes_; }

  // Nothing when there is none of that id that still lives.
  std::optional<WarmBox> take(const std::string& id);
  // One of those that there are, to be lent, and how many are. They are the pool's no more, but
  // count among those that there should be until they are taken or have ended.
  WarmBox take_for_loan();
  void note_lent(std::size_t count) { lent_ = count; }
  // One of those that are lent was taken, or has ended.
  void note_lack();
  // Removes those whose first process has ended, and all of them when something was mounted or
  // unmounted since the last look: they have the host's mounts of when they were made.
  void drop_outdated();
  // For a POLLPRI when that has happened: whoever polls it drops them all.
  [[nodiscard]] int mounts_fd() const { return mounts_.get(); }
  void drop_all() { boxes_.clear(); }

  // Milliseconds until refill() has something to do; nothing: there are enough.
  [[nodiscard]] std::optional<int> time_left() const;
  // Makes one more, if it is time for that.
  enum class Use { kOwn, kLoan };
  void refill(Use use);

 private:
  using Clock = std::chrono::steady_clock;

  storage::Home* home_;
  const OwnScope* scope_;
  std::size_t wanted_ = 0;
  std::size_t lent_ = 0;
  [[nodiscard]] std::size_t count() const { return boxes_.size() + lent_; }
  UniqueFd mounts_;  // the list of this process's mounts
  std::list<WarmBox> boxes_;
  Clock::time_point lacking_since_;
  Clock::time_point due_;
};

}  // namespace carrel::native
