#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace carrel::mcp {

// The messages of the Model Context Protocol: JSON-RPC 2.0, one at a time. What a peer sends is
// hostile: bounded in size, depth and number of values, and read strictly. The same for a client
// and for a server.

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kLargestMessage = 8U << 20;
inline constexpr std::size_t kLongestId = 256;
inline constexpr std::size_t kLongestMethod = 256;

// Whom an answer is for: a whole number, a text, or nobody, where the question could not be read.
using MessageId = std::variant<std::monostate, std::int64_t, std::string>;

// Codes of JSON-RPC, and those that the protocol adds.
inline constexpr std::int64_t kParseError = -32700;
inline constexpr std::int64_t kMethodNotFound = -32601;
inline constexpr std::int64_t kInvalidParams = -32602;
inline constexpr std::int64_t kMissingCapability = -32021;
inline constexpr std::int64_t kUnsupportedVersion = -32022;

struct RpcError {
  std::int64_t code = 0;
  std::string message;  // of the peer: hostile
  Json data;            // null: none
};

struct Message {
  enum class Kind { kRequest, kNotification, kResult, kError };

  Kind kind = Kind::kNotification;
  MessageId id;
  std::string method;            // of a request and of a notification
  Json params = Json::object();  // of both: an object
  Json result = Json::object();  // of a result: an object
  RpcError error = {};
};

Result<Message> parse_message(std::string_view text);

// The message as one line, without its end.
std::string to_text(const Message& message);

Message request_message(std::int64_t id, std::string method, Json params);
Message notification_message(std::string method, Json params);
Message result_message(MessageId id, Json result);
Message error_message(MessageId id, std::int64_t code, std::string text);

// What the peer said instead of an answer, in one line that is safe to show.
std::string describe(const RpcError& error);

}  // namespace carrel::mcp
