#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"
#include "policy/json_fields.h"

namespace carrel::server {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kLargestJson = 8U << 20;
inline constexpr int kDeepestJson = 32;
inline constexpr std::size_t kMostJsonValues = 100'000;

// A JSON document of a stranger: UTF-8 without a byte order mark, at most so deep and of so many
// values, and no key of an object twice, which two readers could understand in two ways.
Result<Json> parse_json(std::string_view text);

using policy::Fields;

}  // namespace carrel::server
