#pragma once

#include <sys/types.h>

#include <optional>

#include "base/result.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::storage {

// The state database for somebody who uses it again and again: to open it reads its log and its
// schema, which takes longer than to write a row. For one thread.
class OpenState {
 public:
  explicit OpenState(const Home& home) : home_(&home) {}

  // Opened anew when there is another file in its place.
  Result<State*> get();
  // Until it is needed again.
  void close() { state_.reset(); }

 private:
  const Home* home_;
  std::optional<State> state_;
  dev_t device_ = 0;
  ino_t file_ = 0;
};

}  // namespace carrel::storage
