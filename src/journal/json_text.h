#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::journal {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kLargestJson = 16U << 20;
inline constexpr int kDeepestJson = 32;

// A JSON document of a stranger, at most so large and so deep; kInvalid with `what` for anything
// else.
Result<Json> parse_json(std::string_view text, std::string_view what);
// In one line; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);

}  // namespace carrel::journal
