#include "tools/toolbox.h"

#include <algorithm>

#include "policy/suggest.h"
#include "tools/exec.h"
#include "tools/file_tools.h"
#include "tools/skills.h"

namespace carrel::tools {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Error lacks(const std::string& name, const std::string& what, const std::string& hint) {
  return {Code::kInvalid, 0, "the tool '" + name + "' needs " + what, hint};
}

// A group's tools, or the one tool of that name.
std::vector<std::string> expand(const std::string& name) {
  if (name == "files") {
    return file_tool_names();
  }
  if (name == "sessions") {
    return session_tool_names();
  }
  return {name};
}

Status add_one(const std::string& name, const Surroundings& with, Registry& registry) {
  if (name == "exec" || name == "run_code") {
    if (with.commands == nullptr) {
      return lacks(name, "a place to run commands in", {});
    }
    return registry.add(name == "exec" ? make_exec(*with.commands, with.outputs)
                                       : make_run_code(*with.commands, with.outputs));
  }
  if (has(session_tool_names(), name)) {
    if (with.sessions == nullptr) {
      return lacks(name, "a sandbox", "sandboxed = \"all\" or \"code\"");
    }
    return registry.add(make_session_tool(name, *with.sessions));
  }
  if (has(file_tool_names(), name)) {
    if (with.files == nullptr) {
      return lacks(name, "a workspace", {});
    }
    return registry.add(make_file_tool(name, *with.files));
  }
  if (name == "skill") {
    CARREL_ASSIGN(Skills skills, Skills::open(with.skills));
    return registry.add(make_skill_tool(std::move(skills)));
  }
  if (name == "ask_question") {
    if (with.questions == nullptr) {
      return lacks(name, "somebody to ask", {});
    }
    return registry.add(make_question_tool(*with.questions));
  }
  const std::vector<std::string> known = known_tools();
  const std::vector<std::string_view> names(known.begin(), known.end());
  return Error{Code::kInvalid, 0, "there is no tool '" + name + "'",
               policy::did_you_mean(name, names)};
}

}  // namespace

std::vector<std::string> known_tools() {
  std::vector<std::string> names = {"exec",     "run_code", "skill",   "ask_question",
                                    "services", "files",    "sessions"};
  for (const std::string& name : file_tool_names()) {
    names.push_back(name);
  }
  for (const std::string& name : session_tool_names()) {
    names.push_back(name);
  }
  return names;
}

Status add_tools(const std::vector<std::string>& names, const Surroundings& surroundings,
                 Registry& registry) {
  for (const std::string& name : names) {
    if (name == "services") {
      for (const Service& service : surroundings.services) {
        CARREL_ASSIGN(std::unique_ptr<Tool> tool, make_service_tool(service));
        CARREL_TRY(registry.add(std::move(tool)));
      }
      continue;
    }
    for (const std::string& one : expand(name)) {
      CARREL_TRY(add_one(one, surroundings, registry));
    }
  }
  return {};
}

}  // namespace carrel::tools
