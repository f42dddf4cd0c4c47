#include "tools/services.h"

#include <nlohmann/json.hpp>

#include "tools/host_program.h"
#include "tools/observation.h"
#include "tools/registry.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

class ServiceTool final : public Tool {
 public:
  ServiceTool(ToolDefinition definition, Service service)
      : Tool(std::move(definition)), service_(std::move(service)) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    auto answer = service_.perform(arguments, cancel);
    if (answer.ok()) {
      return ToolResult{.output = std::move(answer.value())};
    }
    if (is_cancelled(answer.error())) {
      return answer.error();
    }
    return ToolResult{.error = answer.error().to_string()};
  }

 private:
  Service service_;
};

}  // namespace

std::function<Result<std::string>(const Json&, const Cancel&)> perform_by_program(
    std::vector<std::string> words, std::chrono::milliseconds timeout) {
  return [words = std::move(words), timeout](const Json& arguments,
                                             const Cancel& cancel) -> Result<std::string> {
    HostProgram program;
    program.arguments = words;
    program.input = arguments.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    program.timeout = timeout;
    CARREL_ASSIGN(const sandbox::ExecResult result, run_on_host(program, cancel));
    if (!result.success()) {
      return Error{Code::kInvalid, 0, cut_output(render(result)).text, {}};
    }
    return result.standard_output;
  };
}

Result<std::unique_ptr<Tool>> make_service_tool(Service service) {
  Json schema = Json::parse(service.arguments, nullptr, false);
  Status good = schema.is_object()
                    ? check_parameters(schema)
                    : Status(Error{Code::kInvalid, 0, "the schema is not a JSON object", {}});
  if (!good.ok()) {
    good.error().message = "the service '" + service.name + "': " + good.error().message;
    return good.error();
  }
  schema.emplace("additionalProperties", false);
  return std::unique_ptr<Tool>(std::make_unique<ServiceTool>(
      ToolDefinition{"service_" + service.name, service.description, schema.dump()},
      std::move(service)));
}

}  // namespace carrel::tools
