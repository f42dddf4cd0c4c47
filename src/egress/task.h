#pragma once

#include <coroutine>
#include <cstdlib>
#include <optional>
#include <utility>

#include "egress/frames.h"

// Coroutines of one thread: what a connection does is written from top to bottom, and waits where
// the text says co_await.
namespace carrel::egress {

template <typename T>
class Task;

namespace detail {

// Where the frames of coroutines are.
struct InFrames {
  static void* operator new(std::size_t size) { return take_frame(size); }
  static void operator delete(void* frame) noexcept { give_frame(frame); }
};

struct PromiseBase : InFrames {
  std::coroutine_handle<> waiting = std::noop_coroutine();

  struct Resume {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> done) const noexcept {
      return done.promise().waiting;
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() noexcept { return {}; }
  Resume final_suspend() noexcept { return {}; }
  [[noreturn]] void unhandled_exception() noexcept { std::abort(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T result) { value.emplace(std::move(result)); }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace detail

// Something that is done when it is awaited, once.
template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) {
      handle_.destroy();
    }
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
    handle_.promise().waiting = caller;
    return handle_;
  }
  T await_resume() { return handle_.promise().take(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <typename T>
Task<T> detail::Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> detail::Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

namespace detail {

struct Detached {
  struct promise_type : InFrames {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    [[noreturn]] void unhandled_exception() noexcept { std::abort(); }
  };
};

inline Detached detach(Task<void> task) { co_await task; }

}  // namespace detail

// Begins it, and lets it run to its end by itself.
inline void spawn(Task<void> task) { detail::detach(std::move(task)); }

}  // namespace carrel::egress
