#include "agent/saved_plan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/json_value.h"
#include "base/files.h"
#include "manager/stopping.h"
#include "policy/names.h"

namespace carrel::agent {
namespace {

constexpr char kFolder[] = "agents";
constexpr std::size_t kLargest = 16U << 20;

std::string path_of(const std::string& execution) { return std::string(kFolder) + "/" + execution; }

}  // namespace

Status save_plan(const storage::Home& home, const std::string& execution, const SavedPlan& plan) {
  CARREL_TRY(policy::check_name({"the execution", execution}));
  if (::mkdirat(home.directory(), kFolder, 0700) != 0 && errno != EEXIST) {
    return system_error("make the folder for plans of agents");
  }
  Json object{{"flow", plan.flow.name}, {"workspace", plan.workspace}};
  object["reuse"] = plan.reuse == journal::Reuse::kAny ? "any" : "own";
  object["profile"] = Json::parse(profile_to_json(plan.profile), nullptr, false);
  if (plan.wish.has_value()) {
    object["sandbox"] = Json::parse(manager::wish_to_json(*plan.wish), nullptr, false);
  }
  object["turns"] = Json::array();
  for (const FlowFile::Turn& turn : plan.flow.turns) {
    object["turns"].push_back({{"name", turn.name}, {"prompt", turn.prompt}});
  }
  return replace_file_at(home.directory(), path_of(execution),
                         object.dump(-1, ' ', false, Json::error_handler_t::replace), 0600);
}

Result<SavedPlan> load_plan(const storage::Home& home, const std::string& execution) {
  CARREL_TRY(policy::check_name({"the execution", execution}));
  auto text = read_file_at(home.directory(), path_of(execution), kLargest);
  if (!text.ok()) {
    return Error{Code::kNotFound, 0, "there is no execution '" + execution + "' of an agent",
                 "'carrel flow ls' lists them"};
  }
  CARREL_ASSIGN(const Json object, parse_object(text.value(), "the plan of an agent"));
  SavedPlan plan;
  CARREL_ASSIGN(plan.profile,
                parse_profile(member(object, "profile").dump(), "the recorded profile"));
  plan.workspace = text_member(object, "workspace");
  plan.flow.name = text_member(object, "flow");
  // In plans of earlier versions it is not said.
  const bool is_task = plan.flow.name == "default" || plan.flow.name == "typed";
  const std::string reuse = text_member(object, "reuse");
  plan.reuse =
      reuse == "any" || (reuse.empty() && !is_task) ? journal::Reuse::kAny : journal::Reuse::kOwn;
  if (const Json& wish = member(object, "sandbox"); wish.is_object()) {
    CARREL_ASSIGN(plan.wish, manager::wish_from_json(wish.dump()));
  }
  for (const Json& turn : member(object, "turns")) {
    plan.flow.turns.push_back({text_member(turn, "name"), text_member(turn, "prompt")});
  }
  return plan;
}

Status forget_plan(const storage::Home& home, const std::string& execution) {
  CARREL_TRY(policy::check_name({"the execution", execution}));
  if (::unlinkat(home.directory(), path_of(execution).c_str(), 0) != 0 && errno != ENOENT) {
    return system_error("remove the plan of the execution '" + execution + "'");
  }
  return {};
}

}  // namespace carrel::agent
