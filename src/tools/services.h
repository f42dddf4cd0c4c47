#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/tool.h"

namespace carrel::tools {

// Something that an operator lets an agent use outside of its sandbox: typed arguments go in, data
// comes out. The agent chooses neither the program nor where it runs.
struct Service {
  std::string name;  // letters, digits and '_'
  std::string description;
  std::string arguments;  // a JSON schema of an object; unknown arguments are refused
  // Gets the arguments, checked, and returns the answer. What goes wrong is told to the agent.
  std::function<Result<std::string>(const nlohmann::json& arguments, const Cancel& cancel)> perform;
};

// A service that is a program of this host: the arguments are one JSON object on its standard
// input, and its standard output is the answer.
std::function<Result<std::string>(const nlohmann::json&, const Cancel&)> perform_by_program(
    std::vector<std::string> arguments, std::chrono::milliseconds timeout);

// `service_NAME`. kInvalid for a schema that cannot be enforced.
Result<std::unique_ptr<Tool>> make_service_tool(Service service);

}  // namespace carrel::tools
