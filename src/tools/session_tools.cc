#include <array>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tools/danger.h"
#include "tools/exec.h"
#include "tools/observation.h"
#include "tools/sessions.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const Sessions::State& state) {
  OrderedJson object;
  object["session_name"] = replace_invalid_utf8(state.name);
  object["command"] = cut_observation(state.command, 200).text;
  object["cwd"] = replace_invalid_utf8(state.cwd);
  object["completed"] = state.completed;
  if (state.completed) {
    object["exit_code"] = state.end.exit_code;
  }
  return object;
}

// A session as a model reads it: what is known of it, and what it wrote.
ToolResult answer_of(const Sessions::State& state) {
  const OrderedJson object = to_json(state);
  ToolResult result{.output = object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)};
  if (!state.output.empty()) {
    result.output += "\n" + cut_output(state.output).text;
  }
  if (state.completed && !state.end.reason.empty()) {
    result.system = state.end.reason;
  }
  return result;
}

Result<ToolResult> execute(Sessions& sessions, const Json& arguments, const Cancel& cancel) {
  Sessions::Order order;
  order.command = arguments.at("command").get<std::string>();
  if (arguments.contains("folder")) {
    CARREL_ASSIGN(order.folder, workspace_path(arguments.at("folder").get<std::string>()));
  }
  order.name = arguments.value("session_name", "");
  order.wait =
      arguments.value("blocking", false) ? Sessions::Order::Wait::kYes : Sessions::Order::Wait::kNo;
  order.timeout = std::chrono::seconds(arguments.value("timeout", kDefaultTimeout));
  CARREL_ASSIGN(const Sessions::State state, sessions.execute(order, cancel));
  ToolResult result = answer_of(state);
  const std::string advice = advice_about(order.command);
  result.system += (result.system.empty() || advice.empty() ? "" : "\n") + advice;
  return result;
}

Result<ToolResult> check(Sessions& sessions, const Json& arguments, const Cancel& cancel) {
  const std::string name = arguments.at("session_name").get<std::string>();
  CARREL_ASSIGN(const Sessions::State state, sessions.check(name, cancel));
  if (arguments.value("kill_session", false)) {
    CARREL_TRY(sessions.terminate(name, cancel));
  }
  return answer_of(state);
}

Result<ToolResult> terminate(Sessions& sessions, const Json& arguments, const Cancel& cancel) {
  const std::string name = arguments.at("session_name").get<std::string>();
  CARREL_TRY(sessions.terminate(name, cancel));
  return ToolResult{.output = "ended the session '" + replace_invalid_utf8(name) + "'"};
}

Result<ToolResult> list(Sessions& sessions, const Json& /*arguments*/, const Cancel& cancel) {
  CARREL_ASSIGN(const std::vector<Sessions::State> states, sessions.list(cancel));
  OrderedJson rows = OrderedJson::array();
  for (const Sessions::State& state : states) {
    rows.push_back(to_json(state));
  }
  return ToolResult{.output = rows.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)};
}

struct Row {
  std::string_view name;
  std::string_view description;
  std::string_view properties;
  std::string_view required;
  Result<ToolResult> (*action)(Sessions&, const Json&, const Cancel&);
};

constexpr std::array<Row, 4> kRows = {{
    {"execute_command",
     "Starts a command for bash in a named session of the sandbox, which keeps its folder and "
     "variables. Without blocking it returns at once, and check_command_output looks at it; with "
     "blocking it waits for the end, for at most `timeout` seconds (60), after which the command "
     "goes on.",
     R"("command":{"type":"string"},
        "folder":{"type":"string","description":"to start in, relative to /workspace"},
        "session_name":{"type":"string","minLength":1,"maxLength":64},
        "blocking":{"type":"boolean","description":"false by default"},
        "timeout":{"type":"integer","minimum":1,"maximum":3600})",
     R"("command")", execute},
    {"check_command_output",
     "What a session's command has written since it was last looked at, whether it has ended, and "
     "its exit code.",
     R"("session_name":{"type":"string"},
        "kill_session":{"type":"boolean","description":"ends the session afterwards"})",
     R"("session_name")", check},
    {"terminate_command", "Ends a session with everything that was started in it.",
     R"("session_name":{"type":"string"})", R"("session_name")", terminate},
    {"list_commands", "Lists the sessions.", "", "", list},
}};

class SessionTool final : public Tool {
 public:
  SessionTool(ToolDefinition definition, const Row& row, Sessions& sessions)
      : Tool(std::move(definition)), row_(row), sessions_(sessions) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    return row_.action(sessions_, arguments, cancel);
  }

 private:
  const Row& row_;
  Sessions& sessions_;
};

}  // namespace

std::vector<std::string> session_tool_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
  }
  return names;
}

std::unique_ptr<Tool> make_session_tool(const std::string& name, Sessions& sessions) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      const std::string schema = R"({"type":"object","properties":{)" +
                                 std::string(row.properties) + R"(},"required":[)" +
                                 std::string(row.required) + R"(],"additionalProperties":false})";
      return std::make_unique<SessionTool>(
          ToolDefinition{name, std::string(row.description), Json::parse(schema).dump()}, row,
          sessions);
    }
  }
  return nullptr;
}

}  // namespace carrel::tools
