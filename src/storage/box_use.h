#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::storage {

// Somebody does something in a long-lived sandbox. While there is one of these, in any process,
// nobody takes the sandbox for idle; and when the last of them ended is known.
class BoxUse {
 public:
  BoxUse() = default;
  // Waits for whoever is about to put the sandbox to rest. kGone when there is no such sandbox (any
  // more).
  static Result<BoxUse> begin(const Home& home, const std::string& id);
  BoxUse(BoxUse&&) = default;
  BoxUse& operator=(BoxUse&& other) noexcept;
  BoxUse(const BoxUse&) = delete;
  BoxUse& operator=(const BoxUse&) = delete;
  ~BoxUse();

 private:
  explicit BoxUse(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Nobody uses the sandbox, and who wants to waits until this is gone. kConflict while somebody
// does.
Result<UniqueFd> keep_unused(const Home& home, const std::string& id);
// Whether somebody does. Who begins in this moment waits for the answer.
bool is_used(const Home& home, const std::string& id);
// When somebody used it last, in milliseconds since 1970; 0: nobody did.
std::int64_t last_use(const Home& home, const std::string& id);
// As if somebody had used it just now.
void touch_use(const Home& home, const std::string& id);

// When its lease ends, in milliseconds since 1970, for those who ask: the guest keeps a clock of
// its own. Zero is no deadline.
void note_lease(const Home& home, const std::string& id, std::uint64_t lease_ms);
std::int64_t noted_lease(const Home& home, const std::string& id);

// That a sandbox is meant to stand still, and why.
struct Pause {
  std::string reason;
  enum class Until { kResumed, kUsed } until = Until::kResumed;
};
Status note_pause(const Home& home, const std::string& id, const Pause& pause);
Status drop_pause(const Home& home, const std::string& id);
std::optional<Pause> noted_pause(const Home& home, const std::string& id);

// Held by whoever makes a sandbox stand still or lets it go on, be it for a moment: of two such,
// one would wake what the other wants to sleep. kConflict when another holds it for longer.
Result<UniqueFd> lock_standstill(const Home& home, const std::string& id, int patience_ms);

}  // namespace carrel::storage
