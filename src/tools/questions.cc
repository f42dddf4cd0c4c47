#include "tools/questions.h"

#include <nlohmann/json.hpp>

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

class QuestionTool final : public Tool {
 public:
  QuestionTool(ToolDefinition definition, Questions& questions)
      : Tool(std::move(definition)), questions_(questions) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    CARREL_ASSIGN(std::string answer,
                  questions_.ask(arguments.at("question").get<std::string>(), cancel));
    return ToolResult{.output = std::move(answer)};
  }

 private:
  Questions& questions_;
};

}  // namespace

std::unique_ptr<Tool> make_question_tool(Questions& questions) {
  const Json schema = {
      {"type", "object"},
      {"properties", {{"question", {{"type", "string"}, {"minLength", 1}, {"maxLength", 4000}}}}},
      {"required", {"question"}},
      {"additionalProperties", false}};
  return std::make_unique<QuestionTool>(
      ToolDefinition{"ask_question",
                     "Asks the person for whom you work, and returns the answer. It may take long.",
                     schema.dump()},
      questions);
}

}  // namespace carrel::tools
