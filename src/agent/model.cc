#include "agent/model.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdint>

namespace carrel::agent {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Those who were refused together do not come back together.
milliseconds spread(milliseconds pause) {
  std::uint32_t random = 0;
  (void)!::getrandom(&random, sizeof random, 0);
  return pause * (750 + random % 500) / 1000;
}

// False: cancelled.
bool sleep_for(milliseconds pause, const tools::Cancel& cancel) {
  pollfd look{cancel.fd(), POLLIN, 0};
  return ::poll(&look, 1, static_cast<int>(std::min<std::int64_t>(pause.count(), 600'000))) <= 0;
}

}  // namespace

Result<Reply> Model::ask(const Prompt& prompt, const Listener& listener,
                         const tools::Cancel& cancel) {
  milliseconds pause = retries_.first_pause;
  for (int tries = 0;; ++tries) {
    if (cancel.asked()) {
      return tools::cancelled();
    }
    Attempt attempt = this->attempt(prompt, listener, cancel);
    if (cancel.asked()) {
      return tools::cancelled();
    }
    if (attempt.reply.ok() || attempt.hope == Attempt::Hope::kNone || tries >= retries_.most) {
      return std::move(attempt.reply);
    }
    const milliseconds wait =
        std::min(attempt.pause.value_or(spread(pause)), retries_.longest_pause);
    if (prompt.deadline.has_value() && Clock::now() + wait > *prompt.deadline) {
      return std::move(attempt.reply);
    }
    listener.again(attempt.reply.error(), wait);
    if (!sleep_for(wait, cancel)) {
      return tools::cancelled();
    }
    pause = std::min(pause * 2, retries_.longest_pause);
  }
}

}  // namespace carrel::agent
