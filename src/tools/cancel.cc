#include "tools/cancel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace carrel::tools {
namespace {

bool readable(const UniqueFd& fd) {
  pollfd look{fd.get(), POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

}  // namespace

Cancel::Cancel()
    : asked_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      either_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (const UniqueFd* fd : {&asked_, &timer_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(either_.get(), EPOLL_CTL_ADD, fd->get(), &event);
  }
}

void Cancel::ask() const {
  const std::uint64_t one = 1;
  (void)!::write(asked_.get(), &one, sizeof one);
}

void Cancel::set_deadline(std::chrono::steady_clock::time_point deadline) const {
  const auto since = std::max<std::int64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count(), 1);
  itimerspec when{};
  when.it_value.tv_sec = since / 1'000'000'000;
  when.it_value.tv_nsec = since % 1'000'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

bool Cancel::asked() const { return readable(either_); }

bool Cancel::expired() const { return readable(timer_); }

}  // namespace carrel::tools
