#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace carrel::policy {

// Whether a text may be given to the parser of TOML: its size, and how deep it can nest.
Status check_toml_text(std::string_view text, std::string_view path);

// A TOML document as the JSON that says the same; dates and times are refused. `path` is for the
// errors only.
Result<nlohmann::ordered_json> parse_toml_json(std::string_view text, std::string_view path);

}  // namespace carrel::policy
