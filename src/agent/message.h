#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::agent {

// A tool that a model wants to be called. All of it is as the model wrote it: the name may be that
// of no tool, and the arguments may be no JSON.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

struct ToolReply {
  std::string id;  // of the call
  std::string text;
  bool failed = false;
  std::string image = {};  // base64; empty: none
  std::string image_type = {};
};

// One message of a conversation. An assistant has text and calls, a tool message the replies to the
// calls before it.
struct Message {
  enum class Role { kUser, kAssistant, kTool };
  Role role = Role::kUser;
  std::string text = {};
  std::vector<ToolCall> calls = {};
  std::vector<ToolReply> replies = {};
};

// In tokens.
struct Usage {
  std::uint64_t input = 0;
  std::uint64_t output = 0;

  Usage& operator+=(const Usage& other) {
    input += other.input;
    output += other.output;
    return *this;
  }
  [[nodiscard]] std::uint64_t total() const { return input + output; }
};

// What a model says in one go.
struct Reply {
  std::string text;
  std::vector<ToolCall> calls;
  Usage usage;
  enum class Stop { kEnd, kCalls, kLength } stop = Stop::kEnd;
};

// As one JSON document each, for the journal.
std::string messages_to_json(const std::vector<Message>& messages);
Result<std::vector<Message>> messages_from_json(std::string_view text);
std::string reply_to_json(const Reply& reply);
Result<Reply> reply_from_json(std::string_view text);

}  // namespace carrel::agent
