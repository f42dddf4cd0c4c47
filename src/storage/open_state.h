#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::storage {

// The state database for somebody who uses it again and again: to open it reads its log and its
// schema, which takes longer than to write a row.
class OpenState {
 public:
  explicit OpenState(const Home& home) : home_(&home) {}

  // Opened anew when there is another file in its place. For one thread.
  Result<State*> get();
  // The same for many, one at a time.
  Status use(const std::function<Status(State& state)>& what);
  // For the next use.
  void open() {
    const std::lock_guard lock(mutex_);
    (void)get();
  }
  // Until it is needed again.
  void close() {
    const std::lock_guard lock(mutex_);
    state_.reset();
  }

 private:
  std::mutex mutex_;
  const Home* home_;
  std::optional<State> state_;
  dev_t device_ = 0;
  ino_t file_ = 0;
};

}  // namespace carrel::storage
