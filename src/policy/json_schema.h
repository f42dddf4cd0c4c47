#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace carrel::policy {

// The part of JSON Schema that is enforced: type (one or a list of them), const, enum, properties,
// required, additionalProperties (true or false), items, minimum, maximum, minLength, maxLength,
// minItems, maxItems; title, description, default and examples say nothing about what is valid.
// What else a schema has is refused, rather than not enforced. `what` names the whole in a
// sentence.
Status check_schema(const nlohmann::json& schema, std::string_view what);

// kInvalid with a sentence that names the part: one that is missing, unknown, or not as the schema
// wants it. An unknown one gets the nearest name as a hint. The schema has passed check_schema().
Status check_against_schema(const nlohmann::json& schema, const nlohmann::json& value,
                            std::string_view what);

}  // namespace carrel::policy
