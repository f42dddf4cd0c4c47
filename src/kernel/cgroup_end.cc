// How a Cgroup is stopped and ends: freezing, killing, removing.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/files.h"
#include "kernel/cgroup.h"
#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr auto kFreezeTime = std::chrono::seconds(2);
constexpr auto kKillTime = std::chrono::seconds(2);
constexpr auto kRemoveTime = std::chrono::seconds(5);
constexpr microseconds kShortestWait{50};
constexpr microseconds kLongestWait{5000};

// Sleeps a little longer each time.
class Backoff {
 public:
  explicit Backoff(Clock::duration limit) : end_(Clock::now() + limit) {}
  // False once the time is over.
  bool wait() {
    if (Clock::now() >= end_) {
      return false;
    }
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 2, kLongestWait);
    return true;
  }

 private:
  Clock::time_point end_;
  microseconds next_ = kShortestWait;
};

std::vector<int> members_of(int home, const std::string& group) {
  auto text = read_file_at(home, group + "/cgroup.procs", 16U << 20U);
  return text.ok() ? parse_process_ids(text.value()) : std::vector<int>();
}

// Kills the members of one group. A process id may be given to a stranger at any moment, so each is
// held by a pidfd first and killed only if the group lists the id after that, too.
void kill_members_of(int home, const std::string& group) {
  constexpr std::size_t kAtOnce = 64;
  std::vector<int> members = members_of(home, group);
  for (std::size_t start = 0; start < members.size(); start += kAtOnce) {
    std::size_t end = std::min(members.size(), start + kAtOnce);
    std::vector<std::pair<int, UniqueFd>> held;
    for (std::size_t i = start; i < end; ++i) {
      UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, members[i], 0)));
      if (pidfd.valid()) {
        held.emplace_back(members[i], std::move(pidfd));
      }
    }
    std::vector<int> still = members_of(home, group);
    std::sort(still.begin(), still.end());
    for (const auto& [pid, pidfd] : held) {
      if (std::binary_search(still.begin(), still.end(), pid)) {
        (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
      }
    }
  }
}

}  // namespace

void Cgroup::kill_members(std::size_t index) const {
  for (const std::string& group : groups_deepest_first(home(index), name_)) {
    kill_members_of(home(index), group);
  }
}

Status Cgroup::kill() {
  std::optional<std::size_t> at;
  if (layout_->v2 && exists_in(*layout_->v2)) {
    at = layout_->v2;
    if (write_entry(home(*at), name_, "cgroup.kill", "1") == 0) {
      return {};
    }
  }
  for (std::size_t i = 0; !at && i < layout_->hierarchies.size(); ++i) {
    if (exists_in(i)) {
      at = i;
    }
  }
  if (!at) {
    return {};
  }
  // Frozen processes cannot fork away from the signal. On v1 they take it only once thawed.
  (void)freeze();
  kill_members(*at);
  (void)thaw();
  for (Backoff backoff(kKillTime); populated();) {
    if (!backoff.wait()) {
      return Error{Code::kTimeout, 0, "processes of cgroup '" + name_ + "' do not end", {}};
    }
    kill_members(*at);
  }
  return {};
}

Status Cgroup::freeze() {
  CARREL_TRY(set_frozen("1", "FROZEN"));
  for (Backoff backoff(kFreezeTime);;) {
    bool frozen = false;
    if (layout_->v2 && exists_in(*layout_->v2)) {
      SmallEntry events(home(*layout_->v2), name_, "cgroup.events");
      frozen = find_counter(events.text(), "frozen").value_or(0) == 1;
    } else if (auto freezer = layout_->index[static_cast<unsigned>(Controller::kFreezer)]) {
      frozen = SmallEntry(home(*freezer), name_, "freezer.state").text() == "FROZEN\n";
    }
    if (frozen) {
      return {};
    }
    if (!backoff.wait()) {
      return Error{Code::kTimeout, 0, "processes of cgroup '" + name_ + "' do not freeze", {}};
    }
  }
}

Status Cgroup::thaw() { return set_frozen("0", "THAWED"); }

Status Cgroup::set_frozen(std::string_view v2_value, std::string_view v1_value) {
  int reason = ENOENT;
  if (layout_->v2 && exists_in(*layout_->v2)) {
    reason = write_entry(home(*layout_->v2), name_, "cgroup.freeze", v2_value);
  } else if (auto freezer = layout_->index[static_cast<unsigned>(Controller::kFreezer)];
             freezer && exists_in(*freezer)) {
    reason = write_entry(home(*freezer), name_, "freezer.state", v1_value);
  }
  if (reason == ENOENT) {
    return Error{Code::kUnsupported, 0, "cgroup '" + name_ + "' has no freezer", {}};
  }
  if (reason != 0) {
    return system_error(reason, "freeze or thaw cgroup '" + name_ + "'");
  }
  return {};
}

// Whether nothing of the group is left. Expects the leaves it knows, and looks for others only
// where that was not enough.
bool Cgroup::try_remove() {
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if (!exists_in(i)) {
      continue;
    }
    for (const std::string& leaf : leaves_) {
      (void)::unlinkat(home(i), leaf.c_str(), AT_REMOVEDIR);
    }
    bool gone = ::unlinkat(home(i), name_.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    if (!gone) {
      for (const std::string& group : groups_deepest_first(home(i), name_)) {
        gone = ::unlinkat(home(i), group.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
      }
    }
    if (gone) {
      present_ &= ~(1U << i);
    }
  }
  return present_ == 0;
}

Status Cgroup::remove() {
  v2_directory_.reset();
  // Nearly always its processes have ended; the kernel removes no group that has one.
  if (present_ == 0 || try_remove()) {
    return {};
  }
  (void)kill();
  constexpr int kRoundsOfPatience = 4;
  int round = 0;
  for (Backoff backoff(kRemoveTime); !try_remove(); ++round) {
    if (!backoff.wait()) {
      return Error{Code::kTimeout, EBUSY, "remove cgroup '" + name_ + "'",
                   "a process in it does not end"};
    }
    // A process that is only in a v1 group was not reached through the v2 one.
    for (std::size_t i = 0; round >= kRoundsOfPatience && i < layout_->hierarchies.size(); ++i) {
      if (exists_in(i)) {
        kill_members(i);
      }
    }
  }
  return {};
}

}  // namespace carrel::kernel
