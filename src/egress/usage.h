#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/network.h"

namespace carrel::egress {

// What a sandbox has used of the network.
struct Usage {
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t connections = 0;  // so far
  std::uint64_t denied = 0;
};

// The same, kept where the next egress process finds it. Bytes are written down before they are
// used, some at once: a process that is killed gives none back, and a budget loses at most a
// sixty-fourth, or 1 MiB if that is less, each time.
class KeptUsage {
 public:
  // In `directory`, with what an earlier process wrote there.
  static Result<KeptUsage> open(int directory);

  [[nodiscard]] const Usage& now() const { return now_; }
  // Whether nothing was ever written.
  [[nodiscard]] bool is_new() const { return new_; }
  // Count bytes. False: they are more than the budget has.
  bool spend_out(std::uint64_t bytes, const policy::NetworkBudgets& budgets);
  bool spend_in(std::uint64_t bytes, const policy::NetworkBudgets& budgets);
  void count_connection() { ++now_.connections; }
  void count_denial() { ++now_.denied; }
  // What was used is what is written from now on.
  void settle();

 private:
  [[nodiscard]] bool write();

  UniqueFd file_;
  Usage now_;
  Usage kept_;  // the bytes that are written down
  bool new_ = true;
};

}  // namespace carrel::egress
