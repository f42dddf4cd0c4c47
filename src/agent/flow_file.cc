#include "agent/flow_file.h"

#include "agent/json_value.h"
#include "policy/json_fields.h"
#include "policy/names.h"
#include "policy/toml_json.h"

namespace carrel::agent {
namespace {

Error invalid(std::string_view path, const std::string& message) {
  return {Code::kInvalid, 0, std::string(path) + ": " + message, {}};
}

Result<FlowFile> read_flow(const Json& document, std::string_view path) {
  policy::Fields fields(document, path);
  FlowFile flow;
  flow.name = fields.needed_text("name");
  flow.profile = fields.text("profile").value_or("");
  const auto prompts = fields.texts("prompts");
  const Json* turns = fields.any("turns");
  CARREL_TRY(fields.finish());
  CARREL_TRY(policy::check_name({"name", flow.name}));
  if (prompts.has_value() == (turns != nullptr)) {
    return invalid(path, "a flow has either a list of prompts or [[turns]]");
  }
  for (const std::string& prompt : prompts.value_or(std::vector<std::string>())) {
    flow.turns.push_back({{}, prompt});
  }
  if (turns != nullptr) {
    if (!turns->is_array()) {
      return invalid(path, "'turns' must be a list of tables");
    }
    for (const Json& row : *turns) {
      policy::Fields turn(row, "[[turns]]");
      FlowFile::Turn one;
      one.name = turn.text("name").value_or("");
      one.prompt = turn.needed_text("prompt");
      CARREL_TRY(turn.finish());
      flow.turns.push_back(std::move(one));
    }
  }
  if (flow.turns.empty() || flow.turns.size() > kMostTurns) {
    return invalid(path, "a flow has between 1 and " + std::to_string(kMostTurns) + " turns");
  }
  for (const FlowFile::Turn& turn : flow.turns) {
    if (turn.prompt.empty()) {
      return invalid(path, "a prompt is empty");
    }
  }
  return flow;
}

}  // namespace

Result<FlowFile> parse_flow(std::string_view text, std::string_view path) {
  CARREL_ASSIGN(const Json document, policy::parse_toml_json(text, path));
  return read_flow(document, path);
}

}  // namespace carrel::agent
