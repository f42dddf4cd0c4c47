#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/message.h"
#include "base/result.h"
#include "tools/cancel.h"
#include "tools/tool.h"

namespace carrel::agent {

// What a model is asked. Everything is borrowed.
struct Prompt {
  std::string_view system;
  const std::vector<Message>& messages;
  const std::vector<const tools::ToolDefinition*>& tools;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

// Who hears a model while it speaks.
struct Listener {
  std::function<void(std::string_view text)> said = [](std::string_view) {};
  // The answer did not come to its end, and is asked for once more: what was said is void.
  std::function<void(const Error& why, std::chrono::milliseconds pause)> again =
      [](const Error&, std::chrono::milliseconds) {};
};

// How often, and after how long, an answer that did not come is asked for again. Pauses double.
struct Retries {
  int most = 5;
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{60'000};
};

// A model that takes part in a conversation. What it says is a stranger's.
class Model {
 public:
  virtual ~Model() = default;
  // For the key of a turn: provider, model, and what else decides about its answers. No secrets.
  [[nodiscard]] virtual std::string identity() const = 0;

  // One answer. Where a provider is busy, out of reach or cuts its answer off, it is asked again,
  // as `retries` says. kTimeout with ECANCELED when it was cancelled.
  Result<Reply> ask(const Prompt& prompt, const Listener& listener, const tools::Cancel& cancel);
  void set_retries(const Retries& retries) { retries_ = retries; }

 protected:
  struct Attempt {
    Result<Reply> reply;
    // Whether another one may do better, and when, if the provider said so.
    enum class Hope { kNone, kLater } hope = Hope::kNone;
    std::optional<std::chrono::milliseconds> pause = {};
  };
  virtual Attempt attempt(const Prompt& prompt, const Listener& listener,
                          const tools::Cancel& cancel) = 0;

 private:
  Retries retries_;
};

}  // namespace carrel::agent
