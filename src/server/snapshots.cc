#include <string>
#include <utility>

#include "manager/self.h"
#include "policy/names.h"
#include "server/handlers.h"
#include "server/service.h"

// Workspaces through time. Each of these is a run of the command: what reads a workload's files
// needs rights that this process is better without.
namespace carrel::server {
namespace {

Result<Json> run_command(const std::vector<std::string>& words) {
  CARREL_ASSIGN(const std::string answer, manager::ask_self(words));
  return Json::parse(answer, nullptr, false);
}

void add_most(std::vector<std::string>& words, const manager::Manager::Most most) {
  if (most.has_value()) {
    words.push_back("--most=" + std::to_string(*most));
  }
}

// A name that a person gave, which is no option of the command.
Result<std::string> name_of(Fields& fields, std::string_view key) {
  const std::string name = fields.text(key).value_or("");
  if (!name.empty()) {
    CARREL_TRY(policy::check_name({key, name}));
  }
  return name;
}

}  // namespace

Status take_snapshot(Request& request) {
  Fields fields(request.body);
  CARREL_ASSIGN(const std::string name, name_of(fields, "name"));
  CARREL_TRY(fields.finish());
  std::vector<std::string> words = {"snapshot", "--json", request.id()};
  if (!name.empty()) {
    words.insert(words.end(), {"--name", name});
  }
  Json taken;
  CARREL_TRY(request.service.manager->snapshot(request.caller, request.id(),
                                               [&](const manager::Manager::Most most) -> Status {
                                                 add_most(words, most);
                                                 CARREL_ASSIGN(taken, run_command(words));
                                                 return {};
                                               }));
  return reply(request, 201, taken);
}

Status restore_snapshot(Request& request) {
  Fields fields(request.body);
  CARREL_ASSIGN(const std::string snapshot, name_of(fields, "snapshot"));
  CARREL_TRY(fields.finish());
  if (snapshot.empty()) {
    return Error{Code::kInvalid, 0, "'snapshot' is missing", {}};
  }
  CARREL_TRY(request.service.manager->find(request.caller, request.id()));
  CARREL_ASSIGN(const Json restored, run_command({"restore", "--json", request.id(), snapshot}));
  return reply(request, 200, restored);
}

Status fork_sandbox(Request& request) {
  Fields fields(request.body);
  CARREL_ASSIGN(const std::string name, name_of(fields, "name"));
  CARREL_ASSIGN(const std::string workspace, name_of(fields, "workspace"));
  CARREL_ASSIGN(const std::string snapshot, name_of(fields, "snapshot"));
  CARREL_TRY(fields.finish());
  if (!workspace.empty() && !request.caller.is_operator()) {
    return Error{Code::kDenied, 0, "a request with a token cannot name a workspace", {}};
  }
  std::vector<std::string> words = {"fork", "--json", request.id()};
  for (const auto& [option, value] :
       {std::pair("--name", name), std::pair("--workspace", workspace),
        std::pair("--from", snapshot)}) {
    if (!value.empty()) {
      words.insert(words.end(), {option, value});
    }
  }
  if (!request.caller.is_operator()) {
    words.push_back("--for=" + request.caller.owner);
  }
  const auto make = [&](const manager::Manager::Most most) -> Result<std::string> {
    add_most(words, most);
    CARREL_ASSIGN(const Json made, run_command(words));
    return made.value("id", std::string());
  };
  CARREL_ASSIGN(const storage::SandboxRow row,
                request.service.manager->fork(request.caller, request.id(), make));
  request.service.counters.created.fetch_add(1, std::memory_order_relaxed);
  return reply_sandbox(request, 201, sandbox_text(request, row));
}

Status get_diff(Request& request) {
  const std::string& from = request.query["from"];
  const std::string& to = request.query["to"];
  CARREL_TRY(request.service.manager->find(request.caller, request.id()));
  std::vector<std::string> words = {"diff", "--json", request.id()};
  for (const auto& [option, value] : {std::pair("--from", from), std::pair("--to", to)}) {
    if (!value.empty()) {
      CARREL_TRY(policy::check_name({option, value}));
      words.insert(words.end(), {option, value});
    }
  }
  CARREL_ASSIGN(const Json diff, run_command(words));
  return reply(request, 200, diff);
}

}  // namespace carrel::server
