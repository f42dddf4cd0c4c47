#include <unistd.h>

#include "cli/box.h"
#include "cli/context.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "manager/commands.h"
#include "manager/life.h"
#include "policy/names.h"
#include "policy/spec_json.h"
#include "policy/validate.h"

namespace carrel::cli {

namespace {

// Starts the command and leaves it: prints its number, with which `logs` finds its output.
int start_and_leave(const Context& context, Connection& connection,
                    const sandbox::CommandRequest& request) {
  auto id = manager::start_command(connection.stream, request, sandbox::Input::kNone);
  if (!id.ok()) {
    return fail(context, id.error());
  }
  print(context.json() ? "{\"command\":" + std::to_string(id.value()) + "}\n"
                       : std::to_string(id.value()) + "\n");
  return 0;
}

// --env and --workdir of this one command.
Status take_settings(const Context& context, sandbox::CommandRequest& request) {
  for (const Arguments::GivenSetting& given : context.arguments.settings) {
    const policy::Given value{given.name, given.value};
    if (given.setting->name == "env") {
      CARREL_ASSIGN(policy::EnvironmentVariable variable, policy::parse_variable(value));
      request.environment.push_back(variable.name + "=" + variable.value);
    } else if (given.setting->name == "workdir") {
      CARREL_ASSIGN(request.workdir, policy::normalize_path(value));
    }
  }
  return {};
}

// Whoever types has no limit but one that was given, here or when the sandbox was made.
std::chrono::milliseconds limit_at_terminal(const Context& context, const Connection& connection) {
  if (!context.arguments.has_setting("timeout")) {
    auto row = manager::find_row(connection.home, connection.record.id);
    auto spec = row.ok() ? policy::spec_from_json(row->spec) : row.error();
    if (spec.ok()) {
      return policy::session_timeout(spec.value());
    }
  }
  return timeout_for(context, connection.record);
}

}  // namespace

int exec_command(const Context& context) {
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  sandbox::CommandRequest request;
  for (std::string_view word : context.arguments.command_line) {
    request.arguments.emplace_back(word);
  }
  request.timeout = timeout_for(context, connection.value().record);
  Status taken = take_settings(context, request);
  if (!taken.ok()) {
    return fail(context, taken.error());
  }
  if (context.arguments.has(OptionId::kDetach)) {
    return start_and_leave(context, connection.value(), request);
  }
  request.merged = context.arguments.has(OptionId::kMergeOutput);
  request.terminal = context.arguments.has(OptionId::kTty);
  const bool typed = request.terminal && !context.arguments.has(OptionId::kNoStdin);
  if (typed) {
    Status there = Foreground::check_terminal("-t", kWithoutTerminal);
    if (!there.ok()) {
      return fail(context, there.error());
    }
    request.timeout = limit_at_terminal(context, connection.value());
  }
  if (request.terminal) {
    Foreground::terminal_size(request.rows, request.columns);
    request.environment.insert(request.environment.begin(), "TERM=xterm-256color");
  }
  int input = context.arguments.has(OptionId::kNoStdin) ? -1 : STDIN_FILENO;
  return run_in_box(context, connection.value(), std::move(request), input);
}

int attach_command(const Context& context) {
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  Status there = Foreground::check_terminal(
      "attach", "'carrel sh' and 'carrel exec' run a command without one");
  if (!there.ok()) {
    return fail(context, there.error());
  }
  sandbox::CommandRequest request;
  request.arguments = {"bash", "-i"};
  // A person's shell has no deadline of its own; it ends with the sandbox or with the connection.
  request.timeout = std::chrono::milliseconds(protocol::kMaxTimeoutMs);
  request.terminal = true;
  request.environment = {"TERM=xterm-256color",
                         "PS1=\\u@" + connection.value().record.id.substr(0, 8) + ":\\w\\$ "};
  Foreground::terminal_size(request.rows, request.columns);
  return run_in_box(context, connection.value(), std::move(request), STDIN_FILENO);
}

}  // namespace carrel::cli
