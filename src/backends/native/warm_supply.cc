#include "backends/native/warm_supply.h"

#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "backends/native/keeper_client.h"

namespace carrel::native {

namespace {

using namespace std::chrono_literals;

constexpr int kTickMs = 200;
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
  auto keeper = hold_warm(*home_, count_);
  while (keeper.ok() && !stopping) {
    pollfd news{keeper->get(), POLLIN, 0};
    const int ready = ::poll(&news, 1, kTickMs);
    if (ready <= 0) {
      continue;
    }
    auto id = hear_warm(keeper->get());
    if (!id.ok()) {
      return;
    }
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(id.value()));
  }
}

void WarmSupply::forget() {
  const std::lock_guard lock(mutex_);
  ready_.clear();
}

std::optional<std::string> WarmSupply::take() {
  const std::lock_guard lock(mutex_);
  if (ready_.empty()) {
    return std::nullopt;
  }
  std::string id = std::move(ready_.front());
  ready_.pop_front();
  return id;
}

void WarmSupply::put_back(std::string id) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(id));
}

void WarmSupply::note(Outcome outcome) {
  (outcome == Outcome::kHit ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
}

WarmSupply::Counts WarmSupply::counts() const {
  const std::lock_guard lock(mutex_);
  return {count_, ready_.size(), hits_, misses_};
}

}  // namespace carrel::native
