#pragma once

#include <chrono>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::tools {

// That somebody wants an end to what is going on, or that its time is over. Whoever waits for
// something waits for the descriptor, too. May be told from another thread and from a signal
// handler.
class Cancel {
 public:
  Cancel();

  void ask() const;
  void set_deadline(std::chrono::steady_clock::time_point deadline) const;

  // Whether it is to end, for either reason; and whether its time is over.
  [[nodiscard]] bool asked() const;
  [[nodiscard]] bool expired() const;
  // Readable from then on.
  [[nodiscard]] int fd() const { return either_.get(); }

 private:
  UniqueFd asked_;
  UniqueFd timer_;
  UniqueFd either_;
};

inline Error cancelled() { return {Code::kTimeout, ECANCELED, "cancelled", {}}; }
inline bool is_cancelled(const Error& error) { return error.error_number == ECANCELED; }

}  // namespace carrel::tools
