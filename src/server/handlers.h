#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/json_writer.h"
#include "base/result.h"
#include "manager/commands.h"
#include "sandbox/command.h"
#include "server/request.h"

// What the routes do, in files by what they are about. Each answers, or returns an error and has
// not begun to.
namespace carrel::server {

// about.cc
Status get_health(Request& request);
Status get_ready(Request& request);
Status get_version(Request& request);
Status get_openapi(Request& request);
Status get_metrics(Request& request);

// sandboxes.cc
Status create_sandbox(Request& request);
Status list_sandboxes(Request& request);
Status get_sandbox(Request& request);
Status delete_sandbox(Request& request);
Status put_lease(Request& request);
Status get_events(Request& request);
Status pause_sandbox(Request& request);
Status resume_sandbox(Request& request);
Status stop_sandbox(Request& request);
Status start_sandbox(Request& request);

// inner_life.cc
Status get_services(Request& request);

// commands.cc
Status run_shell(Request& request);
Status run_exec(Request& request);
Status run_once(Request& request);

// background.cc
Status start_background(Request& request);
Status list_background(Request& request);
Status get_background(Request& request);
Status get_output(Request& request);
Status get_output_events(Request& request);
Status post_stdin(Request& request);
Status post_signal(Request& request);
Status delete_background(Request& request);

// terminal.cc
Status open_terminal(Request& request);

// files.cc
Status read_file(Request& request);
Status write_file(Request& request);
Status stat_file(Request& request);
Status list_files(Request& request);
Status watch_files(Request& request);
Status search_files(Request& request);
Status change_files(Request& request);
Status get_archive(Request& request);
Status put_archive(Request& request);

// ports.cc
Status list_ports(Request& request);
Status put_port(Request& request);
// Where the usual servers of a sandbox are to be seen: a URL, or a path of the API without TCP.
void write_links(JsonWriter& to, Request& request, const std::string& id);

// snapshots.cc
Status take_snapshot(Request& request);
Status restore_snapshot(Request& request);
Status get_diff(Request& request);
Status fork_sandbox(Request& request);

// workspaces.cc
Status list_workspaces(Request& request);
Status delete_workspace(Request& request);
Status delete_snapshot(Request& request);

// usage.cc
Status get_usage(Request& request);

// The parts of a body that say what to run, for the shell or as a separate process.
Status read_shell(Fields& fields, sandbox::CommandRequest& command);
Status read_exec(Fields& fields, sandbox::CommandRequest& command);

// A command with what goes along.
struct CommandOrder {
  sandbox::CommandRequest command;
  std::optional<std::string> input;
  std::optional<std::chrono::milliseconds> timeout;  // none: that of its sandbox
};
// The first command of a sandbox that is to be made, if the body has one, and its run when it is
// made. After an error there is no sandbox.
Result<std::optional<CommandOrder>> read_first(const Json* given);
Result<Json> run_first(Request& request, const std::string& id, CommandOrder order,
                       const std::function<void()>& meanwhile);

// Whether the caller may have a sandbox with these settings, on this host; chooses its backend if a
// strength is asked for.
Status check_settings(Request& request, const policy::Spec& most, policy::Spec& wanted);
// The mounts of a spec, opened and judged.
Result<std::vector<native::GivenTree>> open_trees(Request& request, const policy::Spec& spec);

// A sandbox as the API shows it, but for its last brace.
std::string sandbox_text(Request& request, const storage::SandboxRow& row);
// Answers with that, and what there is more to say.
Status reply_sandbox(Request& request, int status, std::string text,
                     const Json& more = Json::object());
// What its guest knows besides (inner_life.cc): it is asked, and not woken for it.
Json inner_life(Request& request, const storage::SandboxRow& row);

}  // namespace carrel::server
