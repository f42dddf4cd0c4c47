#pragma once

#include <optional>
#include <string>

#include "agent/agent.h"
#include "agent/saved_plan.h"
#include "base/result.h"
#include "cli/context.h"
#include "storage/home.h"

namespace carrel::cli {

// Everything that was asked of `carrel agent run`.
struct AgentOrder {
  agent::SavedPlan plan;
  std::string execution;
  std::optional<journal::Replay> replay = {};
  enum class Prompts { kGiven, kTyped } prompts = Prompts::kGiven;
  bool is_named = true;  // somebody gave the execution its name
  bool is_new = false;   // there was none of that name: known once there is a plan
};

// The task, the flow file, or the execution that is resumed, with the profile and the options over
// it. Nothing is made.
Result<AgentOrder> read_agent_order(const Context& context, const storage::Home& home);

// The same for `carrel flow replay`, where something may have to be run: the plan of that execution
// as a new one. kNotFound if it is none of an agent's.
Result<AgentOrder> read_replay_order(const Context& context, const storage::Home& home,
                                     journal::Replay replay);

// How the sandbox is made, and what identifies its image. The workspace's name is put into the
// order; with --workspace-from a new workspace is made. The context has to outlive the plan.
Result<agent::AgentPlan> make_agent_plan(const Context& context, storage::Home& home,
                                         AgentOrder& order);

// Does it, and shows what happens: the exit status.
int run_agent(const Context& context, storage::Home& home, AgentOrder order);

}  // namespace carrel::cli
