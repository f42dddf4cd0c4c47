#include <unistd.h>

#include <string>
#include <utility>

#include "backends/native/network.h"
#include "backends/native/one_shot.h"
#include "backends/native/readiness.h"
#include "cli/context.h"
#include "cli/foreground.h"
#include "cli/mounts.h"
#include "cli/notice.h"
#include "cli/one_shot.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "cli/workspace_source.h"
#include "manager/once.h"
#include "manager/walls.h"
#include "manager/workspace_target.h"
#include "policy/validate.h"
#include "storage/home.h"

namespace carrel::cli {

int run_in_new_sandbox(const Context& context, const policy::Spec& spec,
                       sandbox::CommandRequest command, int input) {
  auto trees = open_mounts(context, spec);
  if (!trees.ok()) {
    return fail(context, trees.error());
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  if (Status possible = native::check_network(home.value(), spec); !possible.ok()) {
    return fail(context, possible.error());
  }
  native::OneShot job;
  job.spec = spec;
  job.trees = std::move(trees.value());
  CopiedSource source(home.value());  // ends after what is held of it
  if (Status copied = source.copy(context, job.spec); !copied.ok()) {
    return fail(context, copied.error());
  }
  job.command = std::move(command);
  manager::OnceHeld held;
  if (Status ready = manager::prepare_once(home.value(), chosen_settings(context.arguments),
                                           manager::finish_restore_apart, job, held);
      !ready.ok()) {
    return fail(context, ready.error());
  }
  source.goes_with_this_run();
  const bool terminal = job.command.terminal;
  if (terminal) {
    Foreground::terminal_size(job.command.rows, job.command.columns);
  }
  const std::string program = job.command.arguments.front();
  auto listener = [&](const native::Enforcement& enforcement) {
    say_what_is_weaker(context, enforcement);
  };
  Result<sandbox::ExecResult> result = Error{};
  {
    Foreground foreground(context.json() ? Foreground::Mode::kCollect : Foreground::Mode::kPassOn,
                          terminal ? Foreground::Terminal::kYes : Foreground::Terminal::kNo, input);
    native::KeepersNursery lender(home.value());
    result = native::OneShots(home.value(), manager::find_walls, &lender)
                 .run(job, foreground.io(), listener);
    foreground.finish(result);
    if (result.ok()) {
      native::note_one_shot(home.value(), lender.was_missed() ? native::Nurseries::kMissed
                                                              : native::Nurseries::kThere);
    }
  }
  if (!result.ok()) {
    return fail(context, result.error());
  }
  if (result.value().exit_code == sandbox::kExitNotFound &&
      result.value().reason == "command not found") {
    result.value().reason = "command not found: " + printable(program);
  }
  return show_result(context, result.value());
}

int run_command(const Context& context) {
  auto spec = sandbox_spec(context.arguments, policy::Operation::kRun);
  if (!spec.ok()) {
    return fail(context, spec.error());
  }
  sandbox::CommandRequest command;
  for (std::string_view word : context.arguments.command_line) {
    command.arguments.emplace_back(word);
  }
  command.terminal = context.arguments.has(OptionId::kTty);
  if (command.terminal && !context.arguments.has(OptionId::kNoStdin)) {
    Status there = Foreground::check_terminal("-t", kWithoutTerminal);
    if (!there.ok()) {
      return fail(context, there.error());
    }
    spec.value().limits.timeout = policy::session_timeout(spec.value());
  }
  command.merged = context.arguments.has(OptionId::kMergeOutput);
  int input = context.arguments.has(OptionId::kNoStdin) ? -1 : STDIN_FILENO;
  return run_in_new_sandbox(context, spec.value(), std::move(command), input);
}

}  // namespace carrel::cli
