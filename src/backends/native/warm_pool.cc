#include "backends/native/warm_pool.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "policy/settings.h"

namespace carrel::native {

namespace {

using namespace std::chrono_literals;

constexpr auto kQuiet = 20ms;     // after one was taken
constexpr auto kLongest = 200ms;  // that one is missing, however often they are taken
constexpr auto kAfterFailure = 2s;

}  // namespace

void WarmPool::want(std::size_t count) {
  wanted_ = std::min(count, kMostWarm);
  while (boxes_.size() > wanted_) {
    boxes_.pop_front();
  }
}

std::optional<WarmBox> WarmPool::take(const std::string& id) {
  drop_outdated();
  const auto found = std::find_if(boxes_.begin(), boxes_.end(),
                                  [&](const WarmBox& box) { return box.id() == id; });
  if (found == boxes_.end()) {
    return std::nullopt;
  }
  std::optional<WarmBox> taken(std::move(*found));
  boxes_.erase(found);
  note_lack();
  return taken;
}

WarmBox WarmPool::take_for_loan() {
  WarmBox taken(std::move(boxes_.front()));
  boxes_.pop_front();
  return taken;
}

void WarmPool::note_lack() {
  const auto now = Clock::now();
  if (count() + 1 == wanted_) {
    lacking_since_ = now;
  }
  due_ = std::min(now + kQuiet, std::max(now, lacking_since_ + kLongest));
}

void WarmPool::drop_outdated() {
  pollfd mounts{mounts_.get(), POLLPRI, 0};
  if (!mounts_.valid() || ::poll(&mounts, 1, 0) != 0) {
    drop_all();
  }
  boxes_.remove_if([](const WarmBox& box) { return !box.is_alive(); });
}

std::optional<int> WarmPool::time_left() const {
  if (count() >= wanted_) {
    return std::nullopt;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(0, left));
}

void WarmPool::refill(Use use) {
  if (count() >= wanted_ || Clock::now() < due_) {
    return;
  }
  if (!mounts_.valid()) {
    mounts_.reset(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  }
  drop_outdated();
  policy::Spec spec;
  spec.cgroup_parent = scope_->group;
  auto host = look_at_setup(*home_, spec);
  if (host.ok()) {
    host->why_no_scope = scope_->why_not;
    auto made = WarmBox::make(*home_, std::make_shared<const HostSetup>(std::move(host.value())),
                              scope_->group);
    // Whoever borrows it knows better what will be asked for.
    if (made.ok() && use == Use::kOwn) {
      (void)made->build_ahead(policy::default_spec(policy::Operation::kCreate));
    }
    if (made.ok()) {
      boxes_.push_back(std::move(made.value()));
      return;
    }
  }
  // Whoever asks meanwhile has his made as always, and is told what is wrong.
  due_ = Clock::now() + kAfterFailure;
}

}  // namespace carrel::native
