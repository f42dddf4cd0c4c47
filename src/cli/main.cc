#include <fcntl.h>
#include <poll.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "backends/docker/standing.h"
#include "backends/microvm/hall.h"
#include "backends/microvm/snapshots.h"
#include "backends/oci/porch.h"
#include "base/version.h"
#include "cli/args.h"
#include "cli/completion.h"
#include "cli/context.h"
#include "cli/help.h"
#include "cli/man_page.h"
#include "cli/output.h"
#include "manager/walls.h"

namespace carrel::cli {
namespace {

int help_command(const Context& context) {
  const Arguments& arguments = context.arguments;
  if (arguments.has(OptionId::kMan)) {
    print(man_page(kVersion));
    return 0;
  }
  if (arguments.operands.empty()) {
    print(program_help());
    return 0;
  }
  const Command* asked = find_command(arguments.operands.front());
  if (asked == nullptr) {
    return fail(context,
                Error{Code::kInvalid, 0,
                      "there is no command '" + printable(arguments.operands.front()) + "'",
                      "see 'carrel help'"});
  }
  print(command_help(*asked));
  return 0;
}

int completion_command(const Context& context) {
  const std::string_view shell = context.arguments.operands.front();
  if (shell == "bash") {
    print(bash_completion());
  } else if (shell == "zsh") {
    print(zsh_completion());
  } else if (shell == "fish") {
    print(fish_completion());
  } else {
    return fail(context, Error{Code::kInvalid, 0, "no completion for '" + printable(shell) + "'",
                               "use bash, zsh or fish"});
  }
  return 0;
}

int version_command(const Context& context) {
  print(context.json() ? "{\"version\":" + json_string(kVersion) + "}\n"
                       : "carrel " + std::string(kVersion) + "\n");
  return 0;
}

int dispatch(const Context& context) {
  switch (context.arguments.command->id) {
    case CommandId::kRun:
      return run_command(context);
    case CommandId::kCode:
      return code_command(context);
    case CommandId::kTasks:
      return tasks_command(context);
    case CommandId::kCreate:
      return create_command(context);
    case CommandId::kShell:
      return shell_command(context);
    case CommandId::kExec:
      return exec_command(context);
    case CommandId::kAttach:
      return attach_command(context);
    case CommandId::kList:
      return list_command(context);
    case CommandId::kInfo:
      return info_command(context);
    case CommandId::kStats:
      return stats_command(context);
    case CommandId::kLogs:
      return logs_command(context);
    case CommandId::kRemove:
      return remove_command(context);
    case CommandId::kPause:
      return pause_command(context);
    case CommandId::kResume:
      return resume_command(context);
    case CommandId::kStop:
      return stop_command(context);
    case CommandId::kStart:
      return start_command(context);
    case CommandId::kTop:
      return top_command(context);
    case CommandId::kCopy:
      return copy_command(context);
    case CommandId::kFile:
      return file_command(context);
    case CommandId::kImage:
      return image_command(context);
    case CommandId::kWorkspace:
      return workspace_command(context);
    case CommandId::kSnapshot:
      return snapshot_command(context);
    case CommandId::kRestore:
      return restore_command(context);
    case CommandId::kFork:
      return fork_command(context);
    case CommandId::kDiff:
      return diff_command(context);
    case CommandId::kApply:
      return apply_command(context);
    case CommandId::kFlow:
      return flow_command(context);
    case CommandId::kCheckpoint:
      return checkpoint_command(context);
    case CommandId::kSetup:
      return setup_command(context);
    case CommandId::kDoctor:
      return doctor_command(context);
    case CommandId::kDf:
      return df_command(context);
    case CommandId::kPrune:
      return prune_command(context);
    case CommandId::kEnv:
      return env_command(context);
    case CommandId::kVerify:
      return verify_command(context);
    case CommandId::kMount:
      return mount_command(context);
    case CommandId::kPort:
      return port_command(context);
    case CommandId::kServe:
      return serve_command(context);
    case CommandId::kAgent:
      return agent_command(context);
    case CommandId::kNet:
      return net_command(context);
    case CommandId::kSecret:
      return secret_command(context);
    case CommandId::kDiskWatch:
      return disk_watch_command(context);
    case CommandId::kEgress:
      return egress_command(context);
    case CommandId::kKeeper:
      return keeper_command(context);
    case CommandId::kPorch:
      return context.arguments.operands.empty() ? oci::run_porch() : docker::run_standing();
    case CommandId::kHall:
      return context.arguments.operands.empty() ? microvm::run_hall() : microvm::run_maker();
    case CommandId::kHelp:
      return help_command(context);
    case CommandId::kCompletion:
      return completion_command(context);
    case CommandId::kVersion:
      return version_command(context);
  }
  return kUsageFailed;
}

int main_with(std::span<const std::string_view> words) {
  if (words.empty()) {
    print_error(program_help());
    return kUsageFailed;
  }
  auto command = select_command(words);
  if (!command.ok()) {
    print_error("carrel: " + printable(command.error().to_string()) + "\n");
    return kUsageFailed;
  }
  auto arguments = parse_arguments(*command.value(), words.subspan(1));
  if (!arguments.ok()) {
    Arguments none;
    none.command = command.value();
    for (std::string_view word : words) {
      if (word == "--") {
        break;
      }
      if (word == "--json") {  // whoever asked for JSON gets the error so, too
        none.options.push_back({OptionId::kJson, {}});
        break;
      }
    }
    return fail(Context{none}, arguments.error());
  }
  if (arguments.value().has(OptionId::kHelp)) {
    print(command_help(*command.value()));
    return 0;
  }
  return dispatch(Context{arguments.value(), manager::find_walls});
}

}  // namespace
}  // namespace carrel::cli

namespace {

// A file or socket of ours must never get the number of a standard stream that the caller closed.
void open_missing_streams() {
  std::array<pollfd, 3> streams{{{0, 0, 0}, {1, 0, 0}, {2, 0, 0}}};
  if (::poll(streams.data(), streams.size(), 0) <= 0) {
    return;
  }
  for (const pollfd& stream : streams) {
    // In this order each one gets the lowest free number: its own.
    if ((stream.revents & POLLNVAL) != 0 && ::open("/dev/null", O_RDWR) != stream.fd) {
      std::abort();
    }
  }
}

}  // namespace

int main(int count, char** words) {
  open_missing_streams();
  return carrel::cli::main_with(std::vector<std::string_view>(words + 1, words + count));
}
