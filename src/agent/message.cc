#include "agent/message.h"

#include <nlohmann/json.hpp>

namespace carrel::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kReplace = Json::error_handler_t::replace;
constexpr std::string_view kRoles[] = {"user", "assistant", "tool"};
constexpr std::string_view kStops[] = {"end", "calls", "length"};

Error damaged() { return {Code::kInvalid, 0, "a recorded conversation cannot be read", {}}; }

Json calls_json(const std::vector<ToolCall>& calls) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    list.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return list;
}

std::vector<ToolCall> calls_of(const Json& list) {
  std::vector<ToolCall> calls;
  for (const Json& row : list) {
    calls.push_back({row.at("id").get<std::string>(), row.at("name").get<std::string>(),
                     row.at("arguments").get<std::string>()});
  }
  return calls;
}

template <typename Kind, std::size_t Size>
Kind kind_of(const std::string_view (&names)[Size], const std::string& name) {
  for (std::size_t i = 0; i < Size; ++i) {
    if (names[i] == name) {
      return static_cast<Kind>(i);
    }
  }
  return static_cast<Kind>(0);
}

}  // namespace

std::string messages_to_json(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    Json row{{"role", kRoles[static_cast<std::size_t>(message.role)]}, {"text", message.text}};
    if (!message.calls.empty()) {
      row["calls"] = calls_json(message.calls);
    }
    for (const ToolReply& reply : message.replies) {
      row["replies"].push_back({{"id", reply.id},
                                {"text", reply.text},
                                {"failed", reply.failed},
                                {"image", reply.image},
                                {"image_type", reply.image_type}});
    }
    list.push_back(std::move(row));
  }
  return list.dump(-1, ' ', false, kReplace);
}

Result<std::vector<Message>> messages_from_json(std::string_view text) {
  const Json list = Json::parse(text, nullptr, false);
  if (!list.is_array()) {
    return damaged();
  }
  std::vector<Message> messages;
  try {
    for (const Json& row : list) {
      Message message;
      message.role = kind_of<Message::Role>(kRoles, row.at("role").get<std::string>());
      message.text = row.at("text").get<std::string>();
      if (row.contains("calls")) {
        message.calls = calls_of(row.at("calls"));
      }
      for (const Json& reply : row.value("replies", Json::array())) {
        message.replies.push_back({reply.at("id").get<std::string>(),
                                   reply.at("text").get<std::string>(),
                                   reply.at("failed").get<bool>(), reply.value("image", ""),
                                   reply.value("image_type", "")});
      }
      messages.push_back(std::move(message));
    }
  } catch (const Json::exception&) {
    return damaged();
  }
  return messages;
}

std::string reply_to_json(const Reply& reply) {
  const Json object{{"text", reply.text},
                    {"calls", calls_json(reply.calls)},
                    {"input_tokens", reply.usage.input},
                    {"output_tokens", reply.usage.output},
                    {"stop", kStops[static_cast<std::size_t>(reply.stop)]}};
  return object.dump(-1, ' ', false, kReplace);
}

Result<Reply> reply_from_json(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  Reply reply;
  try {
    reply.text = object.at("text").get<std::string>();
    reply.calls = calls_of(object.at("calls"));
    reply.usage.input = object.at("input_tokens").get<std::uint64_t>();
    reply.usage.output = object.at("output_tokens").get<std::uint64_t>();
    reply.stop = kind_of<Reply::Stop>(kStops, object.at("stop").get<std::string>());
  } catch (const Json::exception&) {
    return damaged();
  }
  return reply;
}

}  // namespace carrel::agent
