#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/strict_json.h"

namespace carrel::agent {

// Members of JSON that a stranger wrote, for those who take what is there: nothing throws.

using Json = nlohmann::ordered_json;

// An object of a provider's. kInvalid for everything else.
inline Result<Json> parse_object(std::string_view text, std::string_view what) {
  CARREL_ASSIGN(Json object, policy::parse_strict_json(text, {.what = what}));
  if (!object.is_object()) {
    return Error{Code::kInvalid, 0, std::string(what) + " is not an object", {}};
  }
  return object;
}

// Null where there is no such member.
inline const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) {
    return kNull;
  }
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

inline std::string text_member(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

inline std::uint64_t number_member(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

}  // namespace carrel::agent
