#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::server {

// What is counted, by what the host really sees.
enum class Suspicion {
  kNetwork,  // connections and lookups that the policy denied
  kPath,     // paths of files that were refused
  kLimit,    // limits that were reached: memory, processes, disk
  kSyscall,  // commands that a forbidden system call ended
  kFailure,  // commands that failed
  kRequest,  // requests that were refused and belong to no sandbox
};
// "network", "path", "limit", "syscall", "failure", "request"
std::string_view name_of(Suspicion suspicion);

// Something that happened, as a line of a log tells it.
struct Incident {
  std::string sandbox;  // empty: of none
  Suspicion suspicion = Suspicion::kFailure;
  std::string detail;  // hostile
};

// From a line of the log of events, and from one of the log of network decisions. Nothing: it is
// nothing to worry about.
std::vector<Incident> incidents_of_event(std::string_view line);
std::optional<Incident> incident_of_decision(std::string_view line);

// Too many incidents of a kind in one sandbox within a short time.
struct Alert {
  Incident last;
  std::uint64_t count = 0;
  std::int64_t window_ms = 0;
};

// Counts incidents and says when there are too many: 5 within ten seconds, of commands that failed
// 20. After an alert there is none of the same kind and sandbox for as long; if as many came
// meanwhile, there is another one then, with all of them. What it remembers is bounded by what
// happened within the last window.
class AlertRules {
 public:
  static constexpr std::int64_t kWindowMs = 10'000;
  static constexpr std::size_t kMany = 5;
  static constexpr std::size_t kManyFailures = 20;

  std::optional<Alert> note(const Incident& incident, std::int64_t now_ms);
  // Alerts of what came after one, where its window is over. Forgets what is over.
  std::vector<Alert> tidy(std::int64_t now_ms);
  [[nodiscard]] std::size_t known() const { return seen_.size(); }

 private:
  struct Seen {
    std::vector<std::int64_t> times = {};  // at most as many as an alert takes
    std::int64_t quiet_until_ms = 0;       // 0: there was no alert
    std::uint64_t untold = 0;              // since the last alert
    Incident last = {};
  };
  static Alert tell(Seen& seen, std::uint64_t count, std::int64_t now_ms);
  std::map<std::pair<std::string, Suspicion>, Seen> seen_;
};

}  // namespace carrel::server
