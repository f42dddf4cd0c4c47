#include "backends/native/warm_supply.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "backends/native/keeper_client.h"
#include "backends/native/network.h"

namespace carrel::native {

namespace {

using namespace std::chrono_literals;

constexpr int kTickMs = 200;
constexpr auto kTellAfter = 5ms;
constexpr auto kAgain = 1s;  // after a keeper has gone

}  // namespace

void WarmSupply::run(const std::atomic<bool>& stopping) {
  while (count_ > 0 && !stopping) {
    listen(stopping);
    forget();
    for (auto waited = 0ms; waited < kAgain && !stopping; waited += 100ms) {
      std::this_thread::sleep_for(100ms);
    }
  }
}

void WarmSupply::listen(const std::atomic<bool>& stopping) {
  auto keeper = hold_warm(*home_, {count_, place_of_this_process()});
  if (!keeper.ok()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    keeper_ = std::move(keeper.value());
    mounts_.reset(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  }
  rows_.open();
  while (!stopping) {
    std::array<pollfd, 2> news{{{keeper_.get(), POLLIN, 0}, {later_.get(), POLLIN, 0}}};
    (void)::poll(news.data(), news.size(), kTickMs);
    if (news[0].revents != 0 && !hear().ok()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    tell_taken();
    drop_outdated();
  }
}

Status WarmSupply::hear() {
  CARREL_ASSIGN(WarmNews news, hear_warm(keeper_.get()));
  Ready ready{std::move(news.id), {}};
  if (news.offer.has_value()) {
    // What cannot be adopted ends here, and the keeper makes another one.
    ready.id = news.offer->id;
    auto box = WarmBox::adopt(*home_, std::move(*news.offer));
    if (!box.ok() || !prepare(box.value()).ok()) {
      std::this_thread::sleep_for(kAgain);
      return {};
    }
    ready.box.emplace(std::move(box.value()));
  }
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(ready));
  return {};
}

// From two on, all but one are locked in as what is most likely asked for, and are its fastest
// beginning. The one that is left can become anything.
bool WarmSupply::may_lock() const {
  const auto locked = std::count_if(ready_.begin(), ready_.end(), [](const Ready& ready) {
    return ready.box.has_value() && ready.box->is_locked();
  });
  return !lock_fails_ && is_usual(likely_) && static_cast<std::size_t>(locked) + 1 < count_;
}

Status WarmSupply::prepare(WarmBox& box) {
  CARREL_TRY(box.build_ahead(likely_));
  {
    const std::lock_guard lock(mutex_);
    if (!may_lock()) {
      return {};
    }
  }
  // Why it cannot, whoever asks for a sandbox is told.
  Status locked = box.lock_ahead(likely_);
  lock_fails_ = !locked.ok();
  return locked;
}

// The settings of which the plan and the lock are made. That they really are the same is seen by
// those; what is decided here is only which one to try.
bool WarmSupply::is_usual(const policy::Spec& wanted) const {
  return wanted.image == likely_.image && wanted.image_name == likely_.image_name &&
         wanted.root_mode == likely_.root_mode && wanted.user == likely_.user &&
         wanted.user_id == likely_.user_id && wanted.group_id == likely_.group_id &&
         wanted.hostname == likely_.hostname && wanted.mounts.empty() && wanted.workspace.empty() &&
         wanted.code.empty() && !has_network(wanted) &&
         wanted.limits.tmp_bytes == likely_.limits.tmp_bytes &&
         wanted.limits.disk_bytes == likely_.limits.disk_bytes;
}

// Those whose first process has ended, and all when something was mounted or unmounted since the
// last look: they have the host's mounts of when they were made. The keeper sees to its own.
void WarmSupply::drop_outdated() {
  pollfd mounts{mounts_.get(), POLLPRI, 0};
  const bool others = !mounts_.valid() || ::poll(&mounts, 1, 0) != 0;
  ready_.remove_if([&](const Ready& ready) {
    return ready.box.has_value() && (others || !ready.box->is_alive());
  });
}

// If the keeper does not hear it, its next one finds the sandbox by its record.
void WarmSupply::tell_taken() {
  std::uint64_t times = 0;
  (void)!::read(later_.get(), &times, sizeof times);
  for (const std::string& id : taken_) {
    (void)::send(keeper_.get(), id.data(), id.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  taken_.clear();
}

void WarmSupply::forget() {
  const std::lock_guard lock(mutex_);
  ready_.clear();
  taken_.clear();
  keeper_.reset();
}

std::optional<WarmSupply::Ready> WarmSupply::take(const policy::Spec& wanted) {
  const std::lock_guard lock(mutex_);
  drop_outdated();
  auto find = [&](bool locked) {
    return std::find_if(ready_.begin(), ready_.end(), [&](const Ready& ready) {
      return (ready.box.has_value() && ready.box->is_locked()) == locked;
    });
  };
  auto found = is_usual(wanted) ? find(true) : ready_.end();
  if (found == ready_.end()) {
    found = find(false);
  }
  if (found == ready_.end()) {
    return std::nullopt;
  }
  std::optional<Ready> ready(std::move(*found));
  ready_.erase(found);
  return ready;
}

void WarmSupply::put_back(Ready ready) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(ready));
}

Result<Creation::Finished> WarmSupply::finish(WarmBox box, CreateRequest request) {
  const std::string id = box.id();
  auto made = finish_warm(*home_, rows_, std::move(request), std::move(box));
  if (made.ok()) {
    const std::lock_guard lock(mutex_);
    taken_.push_back(id);
    const itimerspec soon{{}, {0, std::chrono::nanoseconds(kTellAfter).count()}};
    (void)::timerfd_settime(later_.get(), 0, &soon, nullptr);
  }
  return made;
}

void WarmSupply::note(Outcome outcome) {
  (outcome == Outcome::kHit ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
}

WarmSupply::Counts WarmSupply::counts() const {
  const std::lock_guard lock(mutex_);
  return {count_, ready_.size(), hits_, misses_};
}

}  // namespace carrel::native
