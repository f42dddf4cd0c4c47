#include "mcp/message.h"

#include <limits>
#include <utility>

#include "policy/given.h"
#include "policy/strict_json.h"

namespace carrel::mcp {
namespace {

// Schemas of tools nest deeper than most documents do.
constexpr policy::JsonLimits kLimits{.what = "the message", .deepest = 64, .most_values = 200'000};
constexpr std::int64_t kLargestNumber = (1LL << 53) - 1;  // that everybody reads alike
constexpr auto kReplace = Json::error_handler_t::replace;

Error bad_message(std::string why) {
  return Error{Code::kInvalid, 0, "not a message of MCP: " + std::move(why), {}};
}

Result<std::int64_t> whole_number(const Json& value, const char* what) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargestNumber)
                        : value.is_number_integer() && value.get<std::int64_t>() >= -kLargestNumber;
  if (!fits) {
    return bad_message(std::string(what) + " is not a whole number");
  }
  return value.get<std::int64_t>();
}

Result<MessageId> read_id(const Json& value) {
  if (value.is_null()) {
    return MessageId();
  }
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().size() > kLongestId) {
      return bad_message("its id is too long");
    }
    return MessageId(value.get<std::string>());
  }
  CARREL_ASSIGN(const std::int64_t number, whole_number(value, "its id"));
  return MessageId(number);
}

Status read_question(const Json& object, Message& message) {
  const Json& method = object["method"];
  if (!method.is_string() || method.get_ref<const std::string&>().empty() ||
      method.get_ref<const std::string&>().size() > kLongestMethod) {
    return bad_message("its method is not a short text");
  }
  message.method = method.get<std::string>();
  if (const auto params = object.find("params"); params != object.end()) {
    if (!params->is_object()) {
      return bad_message("its params are not an object");
    }
    message.params = *params;
  }
  const auto id = object.find("id");
  if (id == object.end()) {
    message.kind = Message::Kind::kNotification;
    return {};
  }
  message.kind = Message::Kind::kRequest;
  CARREL_ASSIGN(message.id, read_id(*id));
  return std::holds_alternative<std::monostate>(message.id) ? bad_message("a request has no id")
                                                            : Status();
}

Status read_error(const Json& value, RpcError& error) {
  if (!value.is_object() || !value.contains("code") || !value.contains("message") ||
      !value["message"].is_string()) {
    return bad_message("its error has no code and message");
  }
  CARREL_ASSIGN(error.code, whole_number(value["code"], "the code of its error"));
  error.message = value["message"].get<std::string>();
  if (const auto data = value.find("data"); data != value.end()) {
    error.data = *data;
  }
  return {};
}

Status read_answer(const Json& object, Message& message) {
  const auto result = object.find("result");
  const auto error = object.find("error");
  if ((result == object.end()) == (error == object.end())) {
    return bad_message("it has neither a method nor one of result and error");
  }
  const auto id = object.find("id");
  if (id != object.end()) {
    CARREL_ASSIGN(message.id, read_id(*id));
  }
  if (error != object.end()) {
    message.kind = Message::Kind::kError;
    return read_error(*error, message.error);
  }
  message.kind = Message::Kind::kResult;
  if (std::holds_alternative<std::monostate>(message.id)) {
    return bad_message("a result has no id");
  }
  if (!result->is_object()) {
    return bad_message("its result is not an object");
  }
  message.result = *result;
  return {};
}

Json to_json(const MessageId& id) {
  if (const auto* number = std::get_if<std::int64_t>(&id)) {
    return *number;
  }
  const auto* text = std::get_if<std::string>(&id);
  return text != nullptr ? Json(*text) : Json();
}

}  // namespace

Result<Message> parse_message(std::string_view text) {
  if (text.size() > kLargestMessage) {
    return Error{Code::kResource,
                 0,
                 "a message of MCP is longer than " + std::to_string(kLargestMessage) + " bytes",
                 {}};
  }
  auto parsed = policy::parse_strict_json(text, kLimits);
  if (!parsed.ok()) {
    return bad_message(parsed.error().message);
  }
  const Json& object = parsed.value();
  if (!object.is_object()) {
    return bad_message("it is not an object");
  }
  const auto version = object.find("jsonrpc");
  if (version == object.end() || *version != "2.0") {
    return bad_message("it is not JSON-RPC 2.0");
  }
  Message message;
  if (object.contains("method")) {
    CARREL_TRY(read_question(object, message));
  } else {
    CARREL_TRY(read_answer(object, message));
  }
  return message;
}

std::string to_text(const Message& message) {
  Json object{{"jsonrpc", "2.0"}};
  switch (message.kind) {
    case Message::Kind::kRequest:
      object["id"] = to_json(message.id);
      [[fallthrough]];
    case Message::Kind::kNotification:
      object["method"] = message.method;
      object["params"] = message.params;
      break;
    case Message::Kind::kResult:
      object["id"] = to_json(message.id);
      object["result"] = message.result;
      break;
    case Message::Kind::kError:
      object["id"] = to_json(message.id);
      object["error"] = {{"code", message.error.code}, {"message", message.error.message}};
      if (!message.error.data.is_null()) {
        object["error"]["data"] = message.error.data;
      }
      break;
  }
  return object.dump(-1, ' ', false, kReplace);
}

Message request_message(std::int64_t id, std::string method, Json params) {
  return Message{.kind = Message::Kind::kRequest,
                 .id = id,
                 .method = std::move(method),
                 .params = std::move(params)};
}

Message notification_message(std::string method, Json params) {
  return Message{.kind = Message::Kind::kNotification,
                 .id = {},
                 .method = std::move(method),
                 .params = std::move(params)};
}

Message result_message(MessageId id, Json result) {
  Message message;
  message.kind = Message::Kind::kResult;
  message.id = std::move(id);
  message.result = std::move(result);
  return message;
}

Message error_message(MessageId id, std::int64_t code, std::string text) {
  Message message;
  message.kind = Message::Kind::kError;
  message.id = std::move(id);
  message.error = {code, std::move(text), {}};
  return message;
}

std::string describe(const RpcError& error) {
  return policy::printable(error.message, 500) + " (" + std::to_string(error.code) + ")";
}

}  // namespace carrel::mcp
