#pragma once

#include <string>

#include "cli/args.h"
#include "sandbox/walls.h"

namespace carrel::cli {

// One invocation: what was asked, as far as every command needs it.
struct Context {
  const Arguments& arguments;
  // Tests of single commands have none.
  sandbox::FindWalls find_walls = sandbox::find_no_walls;

  [[nodiscard]] bool json() const { return arguments.has(OptionId::kJson); }
};

// Each returns the exit status.
int run_command(const Context& context);
int code_command(const Context& context);
int tasks_command(const Context& context);
int create_command(const Context& context);
int shell_command(const Context& context);
int exec_command(const Context& context);
int attach_command(const Context& context);
int list_command(const Context& context);
int info_command(const Context& context);
int stats_command(const Context& context);
int logs_command(const Context& context);
int remove_command(const Context& context);
int pause_command(const Context& context);
int resume_command(const Context& context);
int stop_command(const Context& context);
int start_command(const Context& context);
int top_command(const Context& context);
int copy_command(const Context& context);
int file_command(const Context& context);
int image_command(const Context& context);
int workspace_command(const Context& context);
int snapshot_command(const Context& context);
int restore_command(const Context& context);
int fork_command(const Context& context);
int diff_command(const Context& context);
int apply_command(const Context& context);
int flow_command(const Context& context);
int setup_command(const Context& context);
int doctor_command(const Context& context);
int env_command(const Context& context);
int verify_command(const Context& context);
int mount_command(const Context& context);
int port_command(const Context& context);
int serve_command(const Context& context);
int agent_command(const Context& context);
int net_command(const Context& context);
int secret_command(const Context& context);
int keeper_command(const Context& context);
int egress_command(const Context& context);
int disk_watch_command(const Context& context);
int checkpoint_command(const Context& context);
int df_command(const Context& context);
int prune_command(const Context& context);

}  // namespace carrel::cli
