#pragma once

#include <nlohmann/json.hpp>

namespace carrel::server {

// One JSON object a line on stderr, with the time first. Texts in it are escaped and cut, and lines
// of several threads never mix.
void log_line(const nlohmann::ordered_json& fields);

}  // namespace carrel::server
