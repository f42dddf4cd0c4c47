#include "egress/loop.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace carrel::egress {

bool Wait::await_ready() const noexcept {
  if (pending_ != nullptr && *pending_) {
    *pending_ = false;
    return true;
  }
  return false;
}

void Wait::await_suspend(std::coroutine_handle<> handle) {
  handle_ = handle;
  if (place_ != nullptr) {
    *place_ = this;
  }
  if (deadline_ != kNever) {
    timer_ = loop_->timers_.emplace(deadline_, this);
    timed_ = true;
  }
}

Woken Wait::await_resume() noexcept { return how_; }

// The object is part of the coroutine that goes on here, and may be gone afterwards.
void Wait::wake(Woken how) {
  how_ = how;
  if (place_ != nullptr) {
    *place_ = nullptr;
  }
  if (timed_) {
    loop_->timers_.erase(timer_);
    timed_ = false;
  }
  handle_.resume();
}

namespace {

constexpr std::size_t kScratch = 64U << 10;

}  // namespace

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), scratch_(kScratch) {}

std::uint32_t Loop::add(Watched& watched, int fd) {
  std::uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  slots_[slot].watched = &watched;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = static_cast<std::uint64_t>(slots_[slot].generation) << 32 | slot;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  return slot;
}

void Loop::remove(std::uint32_t slot, int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  slots_[slot].watched = nullptr;
  ++slots_[slot].generation;  // an event that was already fetched is nobody's
  free_.push_back(slot);
}

void Loop::dispatch(std::uint64_t key, std::uint32_t events) {
  const Slot& slot = slots_[static_cast<std::uint32_t>(key)];
  if (slot.watched != nullptr && slot.generation == static_cast<std::uint32_t>(key >> 32)) {
    slot.watched->note(events);
  }
}

void Loop::expire() {
  const Deadline now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    timers_.begin()->second->wake(Woken::kLate);
  }
}

int Loop::patience() const {
  if (timers_.empty()) {
    return -1;
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

Status Loop::run() {
  std::array<epoll_event, 128> events{};
  while (!stopped_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), patience());
    if (count < 0 && errno != EINTR) {
      return system_error("wait for events");
    }
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      dispatch(event.data.u64, event.events);
    }
    expire();
  }
  return {};
}

Watched::Watched(Loop& loop, UniqueFd fd)
    : loop_(&loop), fd_(std::move(fd)), slot_(loop.add(*this, fd_.get())) {}

Watched::~Watched() { loop_->remove(slot_, fd_.get()); }

// The first waiter may end the coroutine that this object lives in: nothing of it is used after the
// last one was woken, and the second is looked for anew.
void Watched::note(std::uint32_t events) {
  const bool in = (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  const bool out = (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  ending_ = ending_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  came_in_ = came_in_ || (in && reader_ == nullptr);
  has_room_ = has_room_ || (out && writer_ == nullptr);
  Loop& loop = *loop_;
  const std::uint32_t slot = slot_;
  const std::uint32_t generation = loop.slots_[slot].generation;
  if (in && reader_ != nullptr) {
    reader_->wake(Woken::kReady);
  }
  if (out && loop.slots_[slot].generation == generation && writer_ != nullptr) {
    writer_->wake(Woken::kReady);
  }
}

void Watched::shut() {
  ::shutdown(fd_.get(), SHUT_RDWR);
  came_in_ = true;
  has_room_ = true;
  ending_ = true;
  // Whoever waits hears of it from the kernel, unless this is no connection yet.
  Loop& loop = *loop_;
  const std::uint32_t slot = slot_;
  const std::uint32_t generation = loop.slots_[slot].generation;
  if (reader_ != nullptr) {
    came_in_ = false;
    reader_->wake(Woken::kReady);
  }
  if (loop.slots_[slot].generation == generation && writer_ != nullptr) {
    has_room_ = false;
    writer_->wake(Woken::kReady);
  }
}

void Watched::rouse() {
  Loop& loop = *loop_;
  const std::uint32_t slot = slot_;
  const std::uint32_t generation = loop.slots_[slot].generation;
  if (reader_ != nullptr) {
    reader_->wake(Woken::kReady);
  }
  if (loop.slots_[slot].generation == generation && writer_ != nullptr) {
    writer_->wake(Woken::kReady);
  }
}

void Watched::reset_on_close() {
  const linger now{1, 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace carrel::egress
