#include "agent/recording.h"

#include "agent/json_value.h"
#include "tools/file_tools.h"

namespace carrel::agent {
namespace {

constexpr auto kReplace = Json::error_handler_t::replace;

std::string to_json(const tools::ToolResult& result) {
  Json object{{"output", result.output}, {"error", result.error}, {"system", result.system}};
  if (!result.image.empty()) {
    object["image"] = result.image;
    object["image_type"] = result.image_type;
  }
  if (!result.summary.empty()) {
    object["summary"] = result.summary;
  }
  if (result.exit_code.has_value()) {
    object["exit_code"] = *result.exit_code;
  }
  return object.dump(-1, ' ', false, kReplace);
}

Result<tools::ToolResult> result_from(const std::string& text) {
  CARREL_ASSIGN(const Json object, parse_object(text, "a recorded answer of a tool"));
  tools::ToolResult result;
  result.output = text_member(object, "output");
  result.error = text_member(object, "error");
  result.system = text_member(object, "system");
  result.image = text_member(object, "image");
  result.image_type = text_member(object, "image_type");
  result.summary = text_member(object, "summary");
  if (const Json& code = member(object, "exit_code"); code.is_number_integer()) {
    result.exit_code = code.get<int>();
  }
  return result;
}

// Files of the workspace are in its snapshot; what else a tool does may be elsewhere, such as in
// the shell or in /tmp.
journal::Effects effects_of(const std::string& tool) {
  for (const std::string& name : tools::file_tool_names()) {
    if (name == tool) {
      return journal::Effects::kNone;
    }
  }
  return tool == "skill" || tool == "ask_question" ? journal::Effects::kNone
                                                   : journal::Effects::kPossible;
}

// Arguments are recorded as JSON, also where a model wrote none.
std::string as_json(const std::string& text) {
  return Json::accept(text) ? text : Json(text).dump(-1, ' ', false, kReplace);
}

}  // namespace

Result<Reply> Recording::model(const std::string& conversation,
                               const std::function<Result<Reply>()>& ask) {
  const journal::CallSubject subject{.kind = journal::CallKind::kModel,
                                     .name = model_,
                                     .arguments = Json{{"conversation", conversation}}.dump()};
  CARREL_ASSIGN(const journal::Turn::Called called,
                turn_.call(subject, [&]() -> Result<journal::CallOutcome> {
                  CARREL_ASSIGN(const Reply reply, ask());
                  return journal::CallOutcome{.result = reply_to_json(reply)};
                }));
  return reply_from_json(called.outcome.result);
}

Result<tools::ToolResult> Recording::tool(
    const ToolCall& call, const std::function<Result<tools::ToolResult>()>& call_it) {
  const journal::CallSubject subject{.kind = journal::CallKind::kTool,
                                     .name = call.name,
                                     .arguments = as_json(call.arguments),
                                     // The sandbox has to be as the call left it.
                                     .caching = journal::CallCaching::kNever,
                                     .effects = effects_of(call.name)};
  CARREL_ASSIGN(const journal::Turn::Called called,
                turn_.call(subject, [&]() -> Result<journal::CallOutcome> {
                  CARREL_ASSIGN(const tools::ToolResult result, call_it());
                  journal::CallOutcome outcome{.result = to_json(result)};
                  outcome.succeeded = !result.failed();
                  if (result.exit_code.has_value()) {
                    outcome.exit_code = *result.exit_code;
                  }
                  return outcome;
                }));
  return result_from(called.outcome.result);
}

}  // namespace carrel::agent
