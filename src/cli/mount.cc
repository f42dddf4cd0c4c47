#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "cli/table.h"
#include "policy/mount_request.h"
#include "policy/mounts.h"
#include "storage/mount_facts.h"

namespace carrel::cli {

namespace {

using policy::MountDecision;
using policy::MountMode;
using policy::MountRule;

std::string_view mode_name(const MountDecision& decision) {
  if (!decision.allowed) {
    return "none";
  }
  return decision.mode == MountMode::kReadWrite ? "read-write" : "read-only";
}

std::string as_json(std::string_view path, const MountDecision& decision) {
  nlohmann::ordered_json object;
  object["allowed"] = decision.allowed;
  object["reason"] = decision.reason;
  object["rule"] = policy::rule_name(decision.rule);
  object["path"] = replace_invalid_utf8(path);
  object["real_path"] = replace_invalid_utf8(decision.real_path);
  object["mode"] = mode_name(decision);
  object["hidden"] = nlohmann::ordered_json::array();
  for (const policy::Entry& entry : decision.hidden) {
    object["hidden"].push_back({{"path", replace_invalid_utf8(entry.path)},
                                {"reason", policy::hidden_because(entry.why)}});
  }
  return object.dump() + "\n";
}

std::string as_table(std::string_view path, const MountDecision& decision) {
  std::vector<std::vector<std::string>> rows = {
      {"verdict", decision.allowed ? "allowed" : "refused"},
      {"reason", decision.reason},
      {"rule", std::string(policy::rule_name(decision.rule))},
      {"path", std::string(path)},
      {"real path", decision.real_path.empty() ? "-" : decision.real_path},
      {"mode", std::string(mode_name(decision))},
  };
  for (const policy::Entry& entry : decision.hidden) {
    rows.push_back({"hidden", entry.path + ": " + std::string(policy::hidden_because(entry.why))});
  }
  return table(rows);
}

Result<MountDecision> decide(const Arguments& arguments, std::string_view path) {
  std::string folder;
  if (!path.starts_with('/')) {
    CARREL_ASSIGN(folder, current_folder());
  }
  auto source = policy::absolute_source({"PATH", path}, folder);
  if (!source.ok()) {
    return policy::refused(MountRule::kSource, source.error().to_string());
  }
  // Without a policy that can be read, nothing is allowed.
  auto spec = sandbox_spec(arguments, policy::Operation::kRun);
  if (!spec.ok()) {
    return policy::refused(MountRule::kPolicy, spec.error().to_string());
  }
  CARREL_ASSIGN(const storage::OwnPlaces own, own_places(arguments));
  CARREL_ASSIGN(const auto forbidden, storage::host_forbidden_paths(own));
  CARREL_ASSIGN(const storage::MountJudge judge, storage::MountJudge::open(forbidden));
  const MountMode mode =
      arguments.has(OptionId::kWritable) ? MountMode::kReadWrite : MountMode::kReadOnly;
  CARREL_ASSIGN(storage::JudgedMount judged,
                judge.judge(spec->mount_grants, {source.value(), mode}));
  return std::move(judged.decision);
}

}  // namespace

int mount_command(const Context& context) {
  const std::string_view path = context.arguments.operands.back();
  auto decision = decide(context.arguments, path);
  if (!decision.ok()) {
    return fail(context, decision.error());
  }
  print(context.json() ? as_json(path, decision.value()) : as_table(path, decision.value()));
  return decision->allowed ? 0 : kCarrelFailed;
}

}  // namespace carrel::cli
