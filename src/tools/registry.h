#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/tool.h"

namespace carrel::tools {

inline constexpr std::size_t kLongestArguments = 4U << 20;

// Whether the parameters of a tool are a schema that is held, of an object.
Status check_parameters(const nlohmann::json& schema);

// The tools of one agent. What is in it is decided before the agent runs: once it is closed,
// nothing is added, whoever asks.
class Registry {
 public:
  // kConflict for a name that is taken, or when it is closed; kInvalid for a definition that no
  // model could use.
  Status add(std::unique_ptr<Tool> tool);
  void close() { closed_ = true; }

  [[nodiscard]] const Tool* find(std::string_view name) const;
  [[nodiscard]] std::vector<const ToolDefinition*> definitions() const;

  // Calls a tool with the text of its arguments as a model wrote it. An unknown tool, text that is
  // not JSON and arguments that the schema refuses are answers that say so. Long answers are cut.
  Result<ToolResult> call(std::string_view name, std::string_view arguments, const Cancel& cancel);

 private:
  std::vector<std::unique_ptr<Tool>> tools_;
  bool closed_ = false;
};

}  // namespace carrel::tools
