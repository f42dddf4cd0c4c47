#include <algorithm>

#include "agent/http_model.h"
#include "agent/json_value.h"
#include "base/utf8.h"

// What is sent to providers.
namespace carrel::agent {
namespace {

constexpr auto kReplaceInvalid = Json::error_handler_t::replace;

// Names that no provider takes back are those of no tool.
std::string tool_name(const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
      });
  return good ? name : "unknown";
}

// The arguments of a call as an object; an empty one for those that were none.
Json arguments_of(const ToolCall& call) {
  auto object = parse_object(call.arguments, "the arguments");
  return object.ok() ? object.value() : Json::object();
}

std::string reply_text(const ToolReply& reply) {
  return reply.text.empty() ? "(no output)" : replace_invalid_utf8(reply.text);
}

Json anthropic_message(const Message& message) {
  Json content = Json::array();
  if (!message.text.empty()) {
    content.push_back({{"type", "text"}, {"text", replace_invalid_utf8(message.text)}});
  }
  for (const ToolCall& call : message.calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", call.id},
                       {"name", tool_name(call.name)},
                       {"input", arguments_of(call)}});
  }
  for (const ToolReply& reply : message.replies) {
    Json parts = Json::array({{{"type", "text"}, {"text", reply_text(reply)}}});
    if (!reply.image.empty()) {
      parts.push_back(
          {{"type", "image"},
           {"source",
            {{"type", "base64"}, {"media_type", reply.image_type}, {"data", reply.image}}}});
    }
    Json row{{"type", "tool_result"}, {"tool_use_id", reply.id}, {"content", std::move(parts)}};
    if (reply.failed) {
      row["is_error"] = true;
    }
    content.push_back(std::move(row));
  }
  return {{"role", message.role == Message::Role::kAssistant ? "assistant" : "user"},
          {"content", std::move(content)}};
}

void add_openai_messages(const Message& message, Json& list) {
  if (message.role == Message::Role::kTool) {
    for (const ToolReply& reply : message.replies) {
      list.push_back({{"role", "tool"},
                      {"tool_call_id", reply.id},
                      {"content", (reply.failed ? "error: " : "") + reply_text(reply)}});
    }
    for (const ToolReply& reply : message.replies) {
      if (!reply.image.empty()) {  // a tool's message has no place for one
        list.push_back({{"role", "user"},
                        {"content", Json::array({{{"type", "image_url"},
                                                  {"image_url",
                                                   {{"url", "data:" + reply.image_type +
                                                                ";base64," + reply.image}}}}})}});
      }
    }
    return;
  }
  const bool assistant = message.role == Message::Role::kAssistant;
  Json row{{"role", assistant ? "assistant" : "user"},
           {"content", replace_invalid_utf8(message.text)}};
  for (const ToolCall& call : message.calls) {
    row["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function",
          {{"name", tool_name(call.name)},
           {"arguments", arguments_of(call).dump(-1, ' ', false, kReplaceInvalid)}}}});
  }
  list.push_back(std::move(row));
}

}  // namespace

std::string anthropic_request(const ModelSettings& settings, const Prompt& prompt) {
  Json body{{"model", settings.name}, {"max_tokens", settings.max_tokens}, {"stream", true}};
  if (settings.temperature.has_value()) {
    body["temperature"] = *settings.temperature;
  }
  if (!prompt.system.empty()) {
    body["system"] = prompt.system;
  }
  body["messages"] = Json::array();
  for (const Message& message : prompt.messages) {
    if (message.role != Message::Role::kAssistant || !message.text.empty() ||
        !message.calls.empty()) {
      body["messages"].push_back(anthropic_message(message));
    }
  }
  for (const tools::ToolDefinition* tool : prompt.tools) {
    body["tools"].push_back({{"name", tool->name},
                             {"description", tool->description},
                             {"input_schema", Json::parse(tool->parameters, nullptr, false)}});
  }
  return body.dump(-1, ' ', false, kReplaceInvalid);
}

std::string openai_request(const ModelSettings& settings, const Prompt& prompt) {
  Json body{
      {"model", settings.name}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  // The name that local servers know, and the one that the provider itself wants.
  body[settings.base_url.empty() ? "max_completion_tokens" : "max_tokens"] = settings.max_tokens;
  if (settings.temperature.has_value()) {
    body["temperature"] = *settings.temperature;
  }
  Json list = Json::array();
  if (!prompt.system.empty()) {
    list.push_back({{"role", "system"}, {"content", prompt.system}});
  }
  for (const Message& message : prompt.messages) {
    add_openai_messages(message, list);
  }
  body["messages"] = std::move(list);
  for (const tools::ToolDefinition* tool : prompt.tools) {
    body["tools"].push_back({{"type", "function"},
                             {"function",
                              {{"name", tool->name},
                               {"description", tool->description},
                               {"parameters", Json::parse(tool->parameters, nullptr, false)}}}});
  }
  return body.dump(-1, ' ', false, kReplaceInvalid);
}

}  // namespace carrel::agent
