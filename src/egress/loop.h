#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "egress/task.h"

namespace carrel::egress {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNever = Deadline::max();

inline Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

enum class Woken { kReady, kLate };

class Loop;

// What a coroutine waits for: an event of a descriptor, or a moment.
class Wait {
 public:
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  [[nodiscard]] bool await_ready() const noexcept;
  void await_suspend(std::coroutine_handle<> handle);
  Woken await_resume() noexcept;

 private:
  friend class Loop;
  friend class Watched;
  // `pending` is set when what is waited for has already been.
  Wait(Loop& loop, Wait** place, bool* pending, Deadline deadline)
      : loop_(&loop), place_(place), pending_(pending), deadline_(deadline) {}
  void wake(Woken how);

  Loop* loop_;
  Wait** place_;  // where whoever wakes it looks; null: nobody does
  bool* pending_;
  Deadline deadline_;
  std::coroutine_handle<> handle_;
  Woken how_ = Woken::kReady;
  std::multimap<Deadline, Wait*>::iterator timer_{};
  bool timed_ = false;
};

// The event loop. One for the process, in one thread.
class Loop {
 public:
  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Serves until stop() was called.
  Status run();
  void stop() { stopped_ = true; }
  Wait sleep(Deadline until) { return Wait(*this, nullptr, nullptr, until); }
  // Lets everything else that is ready go first.
  Wait turn() { return sleep(Clock::now()); }
  // Memory for whoever needs some until it waits the next time.
  [[nodiscard]] std::span<std::uint8_t> scratch() { return scratch_; }

 private:
  friend class Wait;
  friend class Watched;
  struct Slot {
    class Watched* watched = nullptr;
    std::uint32_t generation = 0;
  };

  std::uint32_t add(Watched& watched, int fd);
  void remove(std::uint32_t slot, int fd);
  void dispatch(std::uint64_t key, std::uint32_t events);
  void expire();
  [[nodiscard]] int patience() const;

  UniqueFd epoll_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::multimap<Deadline, Wait*> timers_;
  std::vector<std::uint8_t> scratch_;
  bool stopped_ = false;
};

// A descriptor that does not block, and that a coroutine can wait for: at most one for each way.
// Whoever waits has tried before and was told EAGAIN.
class Watched {
 public:
  Watched(Loop& loop, UniqueFd fd);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  Wait readable(Deadline deadline = kNever) { return Wait(*loop_, &reader_, &came_in_, deadline); }
  Wait writable(Deadline deadline = kNever) { return Wait(*loop_, &writer_, &has_room_, deadline); }

  [[nodiscard]] Loop& loop() { return *loop_; }
  // Whether whoever reads has read so often that it is somebody else's turn.
  [[nodiscard]] bool has_had_its_turn() { return ++reads_ % kReadsInTurn == 0; }
  // Whether the other side was seen to end, or the connection to fail. If not, a read that took
  // less than there was room for has taken everything, and there is no need for another to be told
  // so.
  [[nodiscard]] bool ending() const { return ending_; }

  // Ends the connection in both ways; whoever waits for it is woken, and finds it ended.
  void shut();
  // Has whoever waits look again.
  void rouse();
  // Has the other side see a reset when the descriptor is closed.
  void reset_on_close();

 private:
  friend class Loop;
  void note(std::uint32_t events);

  Loop* loop_;
  UniqueFd fd_;
  std::uint32_t slot_;
  Wait* reader_ = nullptr;
  Wait* writer_ = nullptr;
  bool came_in_ = false;
  bool has_room_ = false;
  std::uint32_t reads_ = 0;
  static constexpr std::uint32_t kReadsInTurn = 32;
  bool ending_ = false;
};

}  // namespace carrel::egress
