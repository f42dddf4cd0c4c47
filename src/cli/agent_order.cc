#include "cli/agent_order.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "agent/flow_file.h"
#include "agent/model_choice.h"
#include "backends/native/network.h"
#include "base/files.h"
#include "cli/mounts.h"
#include "cli/sandbox_spec.h"
#include "cli/workspace_source.h"
#include "manager/image_spec.h"
#include "manager/workspace_target.h"
#include "policy/config.h"
#include "policy/size.h"

namespace carrel::cli {

namespace {

constexpr std::size_t kIdDigits = 12;
constexpr std::size_t kLongestId = 58;
constexpr std::uint64_t kLeaseAfterMs = 600'000;

// A path that a file names, as one that holds wherever the next run is started.
std::string beside(const std::string& file, const std::string& path) {
  if (path.empty()) {
    return path;
  }
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  return (folder / path).lexically_normal().string();
}

Result<agent::Profile> read_profile(const std::string& path) {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, path, policy::kLargestConfig));
  CARREL_ASSIGN(agent::Profile profile, agent::parse_profile(text, path));
  // Paths are seen from the file.
  profile.skills = beside(path, profile.skills);
  profile.folder = beside(path, profile.folder);
  if (profile.model.provider == "scripted") {
    profile.model.name = beside(path, profile.model.name);
  }
  return profile;
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Status take_options(const Arguments& arguments, agent::Profile& profile) {
  if (const auto model = arguments.value(OptionId::kModel); model.has_value()) {
    CARREL_TRY(agent::choose_model(*model, profile.model));
  }
  if (const auto script = arguments.value(OptionId::kScript); script.has_value()) {
    profile.model.provider = "scripted";
    profile.model.name = std::filesystem::absolute(std::string(*script)).string();
  }
  if (const auto steps = arguments.value(OptionId::kMostSteps); steps.has_value()) {
    profile.limits.steps = number_of(*steps);
  }
  if (const auto tokens = arguments.value(OptionId::kMostTokens); tokens.has_value()) {
    profile.limits.tokens = number_of(*tokens);
  }
  if (const auto time = arguments.value(OptionId::kMostTime); time.has_value()) {
    CARREL_ASSIGN(profile.limits.time, policy::parse_duration({"--max-time", *time}));
  }
  return {};
}

Status take_flow_file(const std::string& path, AgentOrder& order, std::string& profile) {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, path, policy::kLargestConfig));
  CARREL_ASSIGN(order.plan.flow, agent::parse_flow(text, path));
  profile = profile.empty() ? beside(path, order.plan.flow.profile) : profile;
  // The same file run again is the same execution.
  order.execution = order.execution.empty() ? order.plan.flow.name : order.execution;
  return {};
}

}  // namespace

Result<AgentOrder> read_agent_order(const Context& context, const storage::Home& home) {
  const Arguments& arguments = context.arguments;
  const bool has_task = arguments.operands.size() > 1;
  const auto file = arguments.value(OptionId::kFlowFile);
  const auto resumed = arguments.value(OptionId::kResume);
  if (static_cast<int>(has_task) + static_cast<int>(file.has_value()) +
          static_cast<int>(resumed.has_value()) >
      1) {
    return Error{Code::kInvalid, 0, "a task, --file and --resume exclude each other", {}};
  }
  AgentOrder order;
  order.execution = arguments.value(OptionId::kExecution).value_or("");
  std::string profile(arguments.value(OptionId::kProfile).value_or(""));
  order.plan.flow.name = "default";
  if (resumed.has_value()) {
    order.execution = *resumed;
    CARREL_ASSIGN(order.plan, agent::load_plan(home, order.execution));
  } else if (file.has_value()) {
    CARREL_TRY(take_flow_file(std::string(*file), order, profile));
    order.plan.reuse = journal::Reuse::kAny;
  } else if (has_task) {
    order.plan.flow.turns = {{{}, std::string(arguments.operands[1])}};
  }
  if (arguments.has(OptionId::kCached)) {
    order.plan.reuse = journal::Reuse::kAny;
  }
  if (!has_task && !file.has_value()) {
    const bool person = ::isatty(STDIN_FILENO) != 0 && !context.json();
    if (!person && !resumed.has_value()) {
      return Error{Code::kInvalid, 0, "there is no task", "carrel agent run 'TASK', or --file"};
    }
    // What was typed before is gone through again, and then it goes on.
    order.prompts = person && (!resumed.has_value() || order.plan.flow.name == "typed")
                        ? AgentOrder::Prompts::kTyped
                        : AgentOrder::Prompts::kGiven;
    order.plan.flow.name = resumed.has_value() ? order.plan.flow.name : "typed";
  }
  if (has_task && arguments.operands[1].empty()) {
    return Error{Code::kInvalid, 0, "the task is empty", {}};
  }
  if (!profile.empty()) {
    CARREL_ASSIGN(order.plan.profile, read_profile(profile));
  }
  CARREL_TRY(take_options(arguments, order.plan.profile));
  if (order.execution.empty()) {
    order.execution = storage::random_hex(kIdDigits);
    order.is_named = false;
  }
  if (order.execution.size() > kLongestId) {  // names are made of it
    return Error{Code::kInvalid, 0,
                 "the name '" + order.execution + "' is longer than " + std::to_string(kLongestId) +
                     " bytes",
                 "choose another one with --execution"};
  }
  return order;
}

Result<AgentOrder> read_replay_order(const Context& context, const storage::Home& home,
                                     journal::Replay replay) {
  AgentOrder order;
  CARREL_ASSIGN(order.plan, agent::load_plan(home, replay.source));
  order.execution =
      context.arguments.value(OptionId::kName).value_or(storage::random_hex(kIdDigits));
  if (agent::load_plan(home, order.execution).ok()) {
    return Error{Code::kConflict, 0, "there is already an execution '" + order.execution + "'",
                 "a replay is a new one: choose another name"};
  }
  order.plan.workspace = context.arguments.value(OptionId::kNewWorkspace)
                             .value_or("replay-" + storage::random_hex(kIdDigits));
  order.replay = std::move(replay);
  CARREL_TRY(take_options(context.arguments, order.plan.profile));
  return order;
}

namespace {

// As it was asked for when the execution began, with the options of this command over it.
Result<manager::Wish> wish_for(const Context& context, const AgentOrder& order) {
  const Arguments& arguments = context.arguments;
  manager::Wish wish;
  wish.given = chosen_settings(arguments);
  const bool anew = arguments.has(OptionId::kProfile) || config_file(arguments).has_value();
  if (order.plan.wish.has_value() && !anew) {
    wish.spec = order.plan.wish->spec;
    const auto also = [](manager::Choice& now, manager::Choice before) {
      now = now == manager::Choice::kGiven ? now : before;
    };
    also(wish.given.workdir, order.plan.wish->given.workdir);
    also(wish.given.user, order.plan.wish->given.user);
    CARREL_TRY(apply_settings(arguments, wish.spec));
    CARREL_TRY(finish_spec(wish.spec));
    return wish;
  }
  CARREL_ASSIGN(wish.spec,
                sandbox_spec(arguments, policy::Operation::kCreate, [&](policy::Spec& below) {
                  return agent::apply_sandbox_settings(order.plan.profile, below);
                }));
  return wish;
}

// What a new execution begins with: a copy of a folder, or what the source of a replay began with.
Status prepare_workspace(const Context& context, const storage::Home& home, const AgentOrder& order,
                         const std::string& goes_with, policy::Spec& spec) {
  if (!order.replay.has_value()) {
    return copy_source(context, home, spec, goes_with);
  }
  CARREL_ASSIGN(journal::Journal journal, journal::Journal::open(home));
  CARREL_ASSIGN(const journal::ExecutionRow source, journal.find_execution(order.replay->source));
  return journal::make_workspace_from(home, source.first_snapshot, spec.workspace, goes_with);
}

}  // namespace

Result<agent::AgentPlan> make_agent_plan(const Context& context, storage::Home& home,
                                         AgentOrder& order) {
  agent::AgentPlan plan;
  CARREL_ASSIGN(manager::Wish wish, wish_for(context, order));
  policy::Spec& spec = wish.spec;
  // What nobody named goes with the execution, also if a run was killed before it made it.
  const std::string own = "agent-" + order.execution;
  const auto is_own = [&](const std::string& name) { return name.empty() || name == own; };
  const bool is_unnamed = order.replay.has_value()
                              ? !context.arguments.has(OptionId::kNewWorkspace)
                              : is_own(spec.workspace) && is_own(order.plan.workspace);
  plan.workspace_goes_with = is_unnamed ? storage::flow_mark(order.execution) : std::string();
  if (order.replay.has_value()) {
    spec.workspace = order.plan.workspace;
  } else if (spec.workspace.empty()) {
    spec.workspace = is_unnamed ? own : order.plan.workspace;
  }
  order.is_new = !agent::load_plan(home, order.execution).ok();
  if (order.is_new) {
    CARREL_TRY(prepare_workspace(context, home, order, plan.workspace_goes_with, spec));
  }
  CARREL_TRY(native::check_network(home, spec));
  order.plan.workspace = spec.workspace;
  policy::Spec resolved = spec;
  CARREL_TRY(manager::resolve_image(home, wish.given, resolved));
  plan.image = resolved.image_name.empty() ? spec.image : resolved.image_name;
  plan.profile = order.plan.profile;
  plan.room.chosen = wish.given;
  plan.room.spec = spec;
  order.plan.wish = std::move(wish);
  plan.room.open_mounts = [&context](const policy::Spec& of) { return open_mounts(context, of); };
  plan.room.finish_restore = manager::finish_restore_apart;
  plan.room.name = own;
  plan.room.lease_ms = static_cast<std::uint64_t>(plan.profile.limits.time.count()) + kLeaseAfterMs;
  plan.flow = order.plan.flow.name;
  plan.execution = order.execution;
  plan.replay = order.replay;
  plan.reuse = order.plan.reuse;
  if (context.arguments.value(OptionId::kCachedFiles).value_or("restore") == "keep") {
    plan.cached_files = journal::CachedFiles::kKeep;
  }
  CARREL_ASSIGN(plan.switches, journal::switches_from_environment());
  return plan;
}

}  // namespace carrel::cli
