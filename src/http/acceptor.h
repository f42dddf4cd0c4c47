#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/listener.h"

namespace carrel::http {

// Takes connections and gives each a thread of its own with a small stack. Beyond the most there
// may be, a client is told 503 at once and nobody waits.
class Acceptor {
 public:
  struct Options {
    std::size_t most = 512;
    std::size_t stack = 512U << 10;  // of which only what is touched costs memory
  };
  // Called in the connection's thread; the connection does not block, and is closed afterwards.
  using Handler = std::function<void(UniqueFd& connection, const Listener& listener)>;

  Acceptor(const std::vector<Listener>& listeners, Handler handler, Options options);
  // Everybody has left before.
  ~Acceptor() = default;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Accepts what is there, waiting up to `patience` for it, or until `wake` is readable.
  Status accept_some(int wake, std::chrono::milliseconds patience);

  [[nodiscard]] std::size_t open() const;
  // Since when there is nobody; now, if there is somebody.
  [[nodiscard]] std::chrono::steady_clock::time_point idle_since() const;
  // Waits until everybody has left, at most so long; whether they have.
  [[nodiscard]] bool await_all(std::chrono::milliseconds patience) const;

 private:
  struct Visit;
  void accept_one(const Listener& listener);
  static void* run(void* visit);
  void leave();

  const std::vector<Listener>& listeners_;
  Handler handler_;
  Options options_;
  mutable std::mutex mutex_;  // for what follows
  std::size_t open_ = 0;
  std::chrono::steady_clock::time_point last_left_ = std::chrono::steady_clock::now();
};

}  // namespace carrel::http
