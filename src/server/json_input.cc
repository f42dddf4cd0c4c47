#include "server/json_input.h"

#include "policy/strict_json.h"

namespace carrel::server {

Result<Json> parse_json(std::string_view text) {
  return policy::parse_strict_json(
      text, {.what = "the body", .deepest = kDeepestJson, .most_values = kMostJsonValues});
}

}  // namespace carrel::server
