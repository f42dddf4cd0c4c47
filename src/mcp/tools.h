#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "mcp/header_parameters.h"
#include "mcp/session.h"

namespace carrel::mcp {

inline constexpr std::size_t kMostTools = 512;  // of one server

// A tool as its server describes it: hostile, and bounded.
struct Tool {
  std::string name;
  std::string description;
  Json input_schema;   // an object
  Json output_schema;  // null: none
  Json annotations;    // null: none; hints, nothing to rely on
  std::vector<HeaderParameter> header_parameters;
};
Result<Tool> read_tool(const Json& value);

// All tools of a server, page after page. What is wrong with one of them leaves that one out, with
// a sentence in `notices`; a list that does not end is cut, with one as well.
struct ToolList {
  std::vector<Tool> tools;
  std::vector<std::string> notices;
};
Result<ToolList> list_tools(Session& session, const Patience& patience);

// A piece of what a tool gives back.
struct Content {
  enum class Kind { kText, kImage, kAudio, kResource, kLink };
  Kind kind = Kind::kText;
  std::string text;  // of a text, of a resource that is one, and the name of a link
  std::string data;  // base64, of an image, a sound, or a resource that is no text
  std::string type;  // MIME; may be empty
  std::string uri;   // of a resource and of a link
};

struct ToolResult {
  std::vector<Content> content;
  Json structured;                                                 // null: none
  enum class Outcome { kDone, kFailed } outcome = Outcome::kDone;  // failed: the tool says so

  // All that is text in it; where there is no content, the structured result.
  [[nodiscard]] std::string text() const;
};
Result<ToolResult> read_tool_result(const Json& value);

struct ToolCall {
  const Tool& tool;
  Json arguments = Json::object();
  std::function<void(const Progress&)> progress = {};
};
Result<ToolResult> call_tool(Session& session, const ToolCall& call, const Patience& patience);

}  // namespace carrel::mcp
