#include "agent/json_value.h"
#include "agent/stream_decoder.h"

namespace carrel::agent {
namespace {

// chat.completion.chunk objects, and "[DONE]".
class OpenAiDecoder final : public StreamDecoder {
 public:
  using StreamDecoder::StreamDecoder;

  Status take(const http::StreamEvent& event) override {
    if (event.data == "[DONE]") {
      // Some servers never give a reason for the end: this is one, too.
      set_ended();
      return {};
    }
    CARREL_ASSIGN(const Json object, parse_object(event.data, "an event of the model's"));
    if (const Json& error = member(object, "error"); !error.is_null()) {
      const std::string type = text_member(error, "type");
      const bool passes =
          type == "server_error" || type == "rate_limit_error" || type == "overloaded_error";
      return Error{
          passes ? Code::kUnavailable : Code::kInvalid,
          0,
          "the provider of the model says: " +
              (error.is_string() ? error.get<std::string>() : text_member(error, "message")),
          {}};
    }
    const Json& usage = member(object, "usage");
    if (usage.is_object()) {
      reply().usage.input = number_member(usage, "prompt_tokens");
      reply().usage.output = number_member(usage, "completion_tokens");
    }
    const Json& choices = member(object, "choices");
    if (!choices.is_array() || choices.empty()) {
      return {};
    }
    const Json& choice = choices.front();
    CARREL_TRY(take_delta(member(choice, "delta")));
    const std::string reason = text_member(choice, "finish_reason");
    if (!reason.empty()) {
      set_ended();
      if (reason == "length") {
        reply().stop = Reply::Stop::kLength;
      }
    }
    return {};
  }

 private:
  Status take_delta(const Json& delta) {
    if (const std::string text = text_member(delta, "content"); !text.empty()) {
      CARREL_TRY(add_text(text));
    }
    const Json& calls = member(delta, "tool_calls");
    if (!calls.is_array()) {
      return {};
    }
    for (const Json& part : calls) {
      // A server that counts nothing sends each call whole.
      const Json& number = member(part, "index");
      const std::size_t index =
          number.is_number_unsigned() ? number.get<std::size_t>() : unnumbered_++;
      CARREL_ASSIGN(ToolCall * call, call_at(index));
      if (const std::string id = text_member(part, "id"); !id.empty()) {
        call->id = id;
      }
      const Json& function = member(part, "function");
      if (const std::string name = text_member(function, "name"); !name.empty()) {
        call->name = name;
      }
      // Ollama's are an object.
      const Json& arguments = member(function, "arguments");
      CARREL_TRY(add_arguments(
          *call, arguments.is_object() ? arguments.dump() : text_member(function, "arguments")));
    }
    return {};
  }

  std::size_t unnumbered_ = 1U << 20;
};

}  // namespace

std::unique_ptr<StreamDecoder> make_openai_decoder(const Listener& listener) {
  return std::make_unique<OpenAiDecoder>(listener);
}

}  // namespace carrel::agent
