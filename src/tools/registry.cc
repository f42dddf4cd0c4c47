#include "tools/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "policy/json_schema.h"
#include "policy/strict_json.h"
#include "policy/suggest.h"
#include "tools/observation.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestName = 64;

// What every provider takes.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

void cut(std::string& text) { text = cut_observation(text).text; }

}  // namespace

Result<ToolResult> as_answer(const Error& error) {
  switch (error.code) {
    case Code::kInvalid:
    case Code::kNotFound:
    case Code::kConflict:
    case Code::kDenied:
    case Code::kUnsupported:
    case Code::kResource:
      return ToolResult{.error = error.to_string()};
    case Code::kTimeout:
      if (!is_cancelled(error)) {
        return ToolResult{.error = error.to_string()};
      }
      break;
    default:
      break;
  }
  return error;
}

Status check_parameters(const nlohmann::json& schema) {
  CARREL_TRY(policy::check_schema(schema, "the arguments"));
  return schema.value("type", Json()) == "object"
             ? Status()
             : Status(Error{
                   Code::kInvalid, 0, "the schema of the arguments is not that of an object", {}});
}

Status Registry::add(std::unique_ptr<Tool> tool) {
  const std::string& name = tool->definition().name;
  if (closed_) {
    return Error{Code::kConflict,
                 0,
                 "the tool '" + name + "' cannot be added: the tools of a running agent are fixed",
                 {}};
  }
  if (!is_name(name)) {
    return Error{Code::kInvalid, 0, "'" + replace_invalid_utf8(name) + "' is no name for a tool",
                 "up to 64 letters, digits, '_' and '-'"};
  }
  if (find(name) != nullptr) {
    return Error{Code::kConflict, 0, "there are two tools with the name '" + name + "'",
                 "each name is one tool's"};
  }
  const Json schema = Json::parse(tool->definition().parameters, nullptr, false);
  if (!schema.is_object()) {
    return Error{Code::kInvalid, 0, "the parameters of the tool '" + name + "' are no schema", {}};
  }
  if (tool->definition().checked == ToolDefinition::Checked::kHere) {
    Status good = check_parameters(schema);
    if (!good.ok()) {
      good.error().message = "the tool '" + name + "': " + good.error().message;
      return good;
    }
  }
  tools_.push_back(std::move(tool));
  return {};
}

const Tool* Registry::find(std::string_view name) const {
  for (const std::unique_ptr<Tool>& tool : tools_) {
    if (tool->definition().name == name) {
      return tool.get();
    }
  }
  return nullptr;
}

std::vector<const ToolDefinition*> Registry::definitions() const {
  std::vector<const ToolDefinition*> list;
  for (const std::unique_ptr<Tool>& tool : tools_) {
    list.push_back(&tool->definition());
  }
  return list;
}

Result<ToolResult> Registry::call(std::string_view name, std::string_view text,
                                  const Cancel& cancel) {
  Tool* tool = const_cast<Tool*>(find(name));
  if (tool == nullptr) {
    std::vector<std::string_view> names;
    for (const std::unique_ptr<Tool>& known : tools_) {
      names.push_back(known->definition().name);
    }
    const std::string hint = policy::did_you_mean(name, names);
    return ToolResult{.error = "there is no tool '" +
                               replace_invalid_utf8(name.substr(0, kLongestName)) + "'" +
                               (hint.empty() ? "" : " (" + hint + ")")};
  }
  if (text.size() > kLongestArguments) {
    return ToolResult{.error = "the arguments of " + std::string(name) + " are too long"};
  }
  const std::string what = "what " + std::string(name) + " was called with";
  // Some providers send nothing where there are no arguments.
  auto read = policy::parse_strict_json(text.empty() ? "{}" : text, {.what = what});
  if (!read.ok()) {
    return ToolResult{.error = read.error().to_string()};
  }
  const Json arguments = read.value();
  if (tool->definition().checked == ToolDefinition::Checked::kHere) {
    const Json schema = Json::parse(tool->definition().parameters, nullptr, false);
    if (Status good = policy::check_against_schema(schema, arguments, name); !good.ok()) {
      return ToolResult{.error = good.error().to_string()};
    }
  }
  auto result = tool->call(arguments, cancel);
  if (!result.ok()) {
    return as_answer(result.error());
  }
  for (std::string* part : {&result->output, &result->error, &result->system}) {
    cut(*part);
  }
  return result;
}

}  // namespace carrel::tools
