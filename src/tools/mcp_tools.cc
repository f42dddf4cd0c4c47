#include "tools/mcp_tools.h"

#include <nlohmann/json.hpp>

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

class McpTool final : public Tool {
 public:
  McpTool(ToolDefinition definition, mcp::Servers& servers)
      : Tool(std::move(definition)), servers_(servers) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    mcp::CallOptions options;
    options.cancel = cancel.fd();
    auto answer = servers_.call(definition().name, arguments, options);
    if (cancel.asked()) {
      return cancelled();
    }
    if (!answer.ok()) {
      // One server that is gone ends no agent.
      return ToolResult{.error = answer.error().to_string()};
    }
    ToolResult result;
    (answer->outcome == mcp::ToolResult::Outcome::kFailed ? result.error : result.output) =
        answer->text();
    if (answer->outcome == mcp::ToolResult::Outcome::kFailed && result.error.empty()) {
      result.error = "the tool failed";
    }
    for (const mcp::Content& content : answer->content) {
      if (content.kind == mcp::Content::Kind::kImage && result.image.empty()) {
        result.image = content.data;
        result.image_type = content.type;
      }
    }
    return result;
  }

 private:
  mcp::Servers& servers_;
};

}  // namespace

std::vector<Error> add_mcp_tools(mcp::Servers& servers, Registry& registry) {
  std::vector<Error> refused;
  for (const mcp::ExposedTool& exposed : servers.tools()) {
    ToolDefinition definition{
        exposed.name, exposed.tool.description,
        exposed.tool.input_schema.dump(-1, ' ', false, Json::error_handler_t::replace),
        ToolDefinition::Checked::kElsewhere};
    Status added = registry.add(std::make_unique<McpTool>(std::move(definition), servers));
    if (!added.ok()) {
      refused.push_back(added.error());
    }
  }
  return refused;
}

}  // namespace carrel::tools
