#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::tools {

// The part of JSON Schema that tools describe themselves with: type, properties, required,
// additionalProperties (true or false), items, enum, minimum, maximum, minLength, maxLength,
// maxItems; title, description and default say nothing about what is valid. What else a schema has
// is refused by check_schema(), rather than not enforced.
Status check_schema(const nlohmann::json& schema);

// kInvalid with a sentence that names the argument: one that is missing, unknown, or not as the
// schema wants it. An unknown one gets the nearest name as a hint. `what` names the whole.
Status check_arguments(const nlohmann::json& schema, const nlohmann::json& arguments,
                       std::string_view what);

}  // namespace carrel::tools
