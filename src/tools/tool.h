#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "tools/cancel.h"

namespace carrel::tools {

// What a tool says: `output` is what was asked for, `error` why that failed, and both may be there.
// `system` is about the tool and not from it.
struct ToolResult {
  std::string output = {};
  std::string error = {};
  std::string image = {};       // base64; empty: none
  std::string image_type = {};  // such as image/png
  std::string system = {};
  std::string summary = {};           // for people: "exit 0, stdout 12 chars, cwd /tmp"
  std::optional<int> exit_code = {};  // of a command that has ended

  [[nodiscard]] bool failed() const { return !error.empty(); }
};

// How a tool is offered to a model, in the form that function calling has.
struct ToolDefinition {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON schema of an object
  // By whom arguments are checked against it: here, or by whoever is behind a tool with a schema
  // that is not ours.
  enum class Checked { kHere, kElsewhere } checked = Checked::kHere;
};

// Something that a model can call. It is defined once, whoever offers it. Arguments come from a
// model: they are checked against the definition before, and mean nothing but themselves.
class Tool {
 public:
  explicit Tool(ToolDefinition definition) : definition_(std::move(definition)) {}
  virtual ~Tool() = default;
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  [[nodiscard]] const ToolDefinition& definition() const { return definition_; }

  // What the call did is a value, also when it failed. An error is Carrel's own, and ends the turn:
  // the sandbox is gone, or the call was cancelled.
  virtual Result<ToolResult> call(const nlohmann::json& arguments, const Cancel& cancel) = 0;

 private:
  ToolDefinition definition_;
};

// For a tool: an error that the caller could have avoided is what it answers, any other stays one.
Result<ToolResult> as_answer(const Error& error);

}  // namespace carrel::tools
