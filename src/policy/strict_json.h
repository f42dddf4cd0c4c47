#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace carrel::policy {

struct JsonLimits {
  std::string_view what = "the text";  // for the errors
  int deepest = 32;
  std::size_t most_values = 100'000;
};

// A JSON document of a stranger: UTF-8 without a byte order mark, at most so deep and of so many
// values, at most 4096 of them in one object, and no key of an object twice, which two readers
// could understand in two ways. How long the text may be is for the caller to say.
Result<nlohmann::ordered_json> parse_strict_json(std::string_view text, const JsonLimits& limits);

}  // namespace carrel::policy
