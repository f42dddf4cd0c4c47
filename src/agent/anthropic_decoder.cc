#include <algorithm>

#include "agent/json_value.h"
#include "agent/stream_decoder.h"

namespace carrel::agent {
namespace {

// message_start, content_block_start, content_block_delta, content_block_stop, message_delta,
// message_stop; ping, error.
class AnthropicDecoder final : public StreamDecoder {
 public:
  using StreamDecoder::StreamDecoder;

  Status take(const http::StreamEvent& event) override {
    CARREL_ASSIGN(const Json object, parse_object(event.data, "an event of the model's"));
    const std::string type = text_member(object, "type");
    if (type == "message_start") {
      const Json& usage = member(member(object, "message"), "usage");
      take_usage(usage);
    } else if (type == "content_block_start") {
      return begin_block(object);
    } else if (type == "content_block_delta") {
      return take_delta(object);
    } else if (type == "message_delta") {
      take_usage(member(object, "usage"));
      const std::string reason = text_member(member(object, "delta"), "stop_reason");
      if (reason == "max_tokens" || reason == "model_context_window_exceeded") {
        reply().stop = Reply::Stop::kLength;
      }
    } else if (type == "message_stop") {
      set_ended();
    } else if (type == "error") {
      const Json& error = member(object, "error");
      const std::string kind = text_member(error, "type");
      const bool passes =
          kind == "overloaded_error" || kind == "api_error" || kind == "rate_limit_error";
      return Error{passes ? Code::kUnavailable : Code::kInvalid,
                   0,
                   "the provider of the model says: " + text_member(error, "message"),
                   {}};
    }
    return {};
  }

 private:
  void take_usage(const Json& usage) {
    const std::uint64_t input = number_member(usage, "input_tokens") +
                                number_member(usage, "cache_creation_input_tokens") +
                                number_member(usage, "cache_read_input_tokens");
    reply().usage.input = std::max(reply().usage.input, input);
    reply().usage.output = std::max(reply().usage.output, number_member(usage, "output_tokens"));
  }

  Status begin_block(const Json& object) {
    const Json& block = member(object, "content_block");
    const std::string type = text_member(block, "type");
    if (type == "text") {
      const std::string text = text_member(block, "text");
      return text.empty() ? Status() : add_text(text);
    }
    if (type == "tool_use") {
      CARREL_ASSIGN(ToolCall * call, call_at(number_member(object, "index")));
      call->id = text_member(block, "id");
      call->name = text_member(block, "name");
    }
    return {};
  }

  Status take_delta(const Json& object) {
    const Json& delta = member(object, "delta");
    const std::string type = text_member(delta, "type");
    if (type == "text_delta") {
      return add_text(text_member(delta, "text"));
    }
    if (type == "input_json_delta") {
      CARREL_ASSIGN(ToolCall * call, call_at(number_member(object, "index")));
      return add_arguments(*call, text_member(delta, "partial_json"));
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<StreamDecoder> make_anthropic_decoder(const Listener& listener) {
  return std::make_unique<AnthropicDecoder>(listener);
}

}  // namespace carrel::agent
