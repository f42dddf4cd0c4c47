#include "journal/json_text.h"

namespace carrel::journal {
namespace {

// A document is written and destroyed recursively, so its depth is looked at before there is one.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    depth += c == '{' || c == '[' ? 1 : 0;
    depth -= c == '}' || c == ']' ? 1 : 0;
    if (depth > kDeepestJson) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what) {
  if (text.size() > kLargestJson || too_deep(text)) {
    return Error{Code::kInvalid, 0, std::string(what) + " is too large or nested too deep", {}};
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return Error{Code::kInvalid, 0, std::string(what) + " is not JSON", {}};
  }
  return json;
}

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace carrel::journal
