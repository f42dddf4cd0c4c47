#include "backends/native/egress_watch.h"

#include <algorithm>

#include "egress/registration.h"
#include "storage/background.h"

namespace carrel::native {

namespace {

constexpr std::chrono::milliseconds kUsual{1000};
constexpr std::chrono::milliseconds kLongest{60'000};

}  // namespace

int EgressWatch::time_left() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

void EgressWatch::look() {
  if (Clock::now() < due_) {
    return;
  }
  const bool there = storage::background_is_alive(*home_, egress::kProcess);
  if (there || !missing_) {  // whoever uses a sandbox may just be starting it
    pause_ = kUsual;
  } else {
    (void)storage::start_in_background(*home_, egress::kProcess, storage::Readiness::kLater);
    pause_ = std::min(2 * pause_, kLongest);
  }
  missing_ = !there;
  due_ = Clock::now() + pause_;
}

}  // namespace carrel::native
