#pragma once

#include <memory>
#include <string>

#include "agent/message.h"
#include "agent/model.h"
#include "base/result.h"
#include "http/event_stream.h"

namespace carrel::agent {

// How much of a model's answer is taken.
inline constexpr std::size_t kLongestText = 4U << 20;
inline constexpr std::size_t kLongestCallText = 4U << 20;  // the arguments of all calls together
inline constexpr std::size_t kMostCalls = 64;

// Puts an answer together from the events of a provider's stream. They are a stranger's: what does
// not belong there is an error and what is too long, too; unknown events say nothing.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Listener& listener) : listener_(listener) {}
  virtual ~StreamDecoder() = default;

  // kUnavailable for an error of the provider's that may pass.
  virtual Status take(const http::StreamEvent& event) = 0;
  // The answer, when the stream has ended. kUnavailable: that was too early.
  Result<Reply> finish();

 protected:
  Status add_text(std::string_view text);
  // The call of that number in the answer; a new one if there is none yet.
  Result<ToolCall*> call_at(std::size_t index);
  Status add_arguments(ToolCall& call, std::string_view text);
  Reply& reply() { return reply_; }
  void set_ended() { ended_ = true; }

 private:
  const Listener& listener_;
  Reply reply_;
  std::vector<std::pair<std::size_t, ToolCall>> calls_;
  std::size_t call_bytes_ = 0;
  bool ended_ = false;
};

// The Messages API of Anthropic, and chat completions as OpenAI has them.
std::unique_ptr<StreamDecoder> make_anthropic_decoder(const Listener& listener);
std::unique_ptr<StreamDecoder> make_openai_decoder(const Listener& listener);

}  // namespace carrel::agent
