#include "mcp/header_parameters.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/ascii.h"
#include "http/fields.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

constexpr std::string_view kMark = "x-mcp-header";
constexpr std::size_t kMostHeaders = 32;
// What they hold are values and no schemas.
constexpr std::array<std::string_view, 4> kData = {"const", "enum", "default", "examples"};
constexpr std::array<std::string_view, 3> kTypes = {"string", "integer", "boolean"};

Error bad_parameter(const std::string& why) {
  return Error{Code::kInvalid, 0, "its x-mcp-header " + why, {}};
}

class Search {
 public:
  enum class Reach { kProperties, kElsewhere };

  // Schemas are nested as deep as a message may be, and no deeper.
  Status look_at(const Json& schema, Reach reach) {
    if (schema.is_array()) {
      for (const Json& one : schema) {
        CARREL_TRY(look_at(one, Reach::kElsewhere));
      }
      return {};
    }
    if (!schema.is_object()) {
      return {};
    }
    if (const auto mark = schema.find(kMark); mark != schema.end()) {
      CARREL_TRY(note(schema, *mark, reach));
    }
    for (const auto& [key, value] : schema.items()) {
      if (std::find(kData.begin(), kData.end(), key) != kData.end()) {
        continue;
      }
      if (key != "properties" || !value.is_object()) {
        CARREL_TRY(look_at(value, Reach::kElsewhere));
        continue;
      }
      for (const auto& [name, property] : value.items()) {
        path_.push_back(name);
        CARREL_TRY(look_at(property, reach));
        path_.pop_back();
      }
    }
    return {};
  }

  std::vector<HeaderParameter> found;

 private:
  Status note(const Json& schema, const Json& mark, Reach reach) {
    if (reach == Reach::kElsewhere || path_.empty()) {
      return bad_parameter("is not on a property");
    }
    if (!mark.is_string() || !http::is_token(mark.get_ref<const std::string&>())) {
      return bad_parameter("is not the name of a header");
    }
    const std::string type = schema.contains("type") && schema["type"].is_string()
                                 ? schema["type"].get<std::string>()
                                 : std::string();
    if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
      return bad_parameter("is on a property that is no string, integer or boolean");
    }
    const std::string name = mark.get<std::string>();
    for (const HeaderParameter& one : found) {
      if (lower(one.header) == lower(name)) {
        return bad_parameter(policy::quote(name) + " is there twice");
      }
    }
    if (found.size() == kMostHeaders) {
      return bad_parameter("is there too often");
    }
    found.push_back({path_, name});
    return {};
  }

  std::vector<std::string> path_;
};

}  // namespace

Result<std::vector<HeaderParameter>> header_parameters(const Json& schema) {
  Search search;
  CARREL_TRY(search.look_at(schema, Search::Reach::kProperties));
  return std::move(search.found);
}

std::vector<std::pair<std::string, std::string>> header_values(
    const std::vector<HeaderParameter>& parameters, const Json& arguments) {
  std::vector<std::pair<std::string, std::string>> headers;
  for (const HeaderParameter& parameter : parameters) {
    const Json* value = &arguments;
    for (const std::string& name : parameter.path) {
      const auto found = value->is_object() ? value->find(name) : value->end();
      if (!value->is_object() || found == value->end()) {
        value = nullptr;
        break;
      }
      value = &*found;
    }
    if (value == nullptr || value->is_structured() || value->is_null()) {
      continue;
    }
    headers.emplace_back(parameter.header,
                         value->is_string() ? value->get<std::string>() : value->dump());
  }
  return headers;
}

}  // namespace carrel::mcp
