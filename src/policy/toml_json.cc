#include "policy/toml_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "policy/checked_toml.h"
#include "policy/config.h"
#include "policy/given.h"

namespace carrel::policy {
namespace {

using Json = nlohmann::ordered_json;

// Together with TOML_MAX_NESTED_VALUES this bounds how deep a document can nest: each dot of a key
// is a table, and the parser's tables are destroyed recursively.
constexpr std::ptrdiff_t kMostDotsInALine = 256;

Error at_line(std::string_view path, std::uint64_t line, std::string_view message) {
  const std::string number = line == 0 ? "" : concat({":", std::to_string(line)});
  return Error{Code::kInvalid, 0, concat({printable(path), number, ": ", message}), {}};
}

Result<Json> to_json(const toml::node& node, std::string_view path) {
  if (const auto* table = node.as_table(); table != nullptr) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) {
      CARREL_ASSIGN(object[std::string(key.str())], to_json(value, path));
    }
    return object;
  }
  if (const auto* array = node.as_array(); array != nullptr) {
    Json list = Json::array();
    for (const toml::node& value : *array) {
      CARREL_ASSIGN(Json item, to_json(value, path));
      list.push_back(std::move(item));
    }
    return list;
  }
  if (const auto* text = node.as_string(); text != nullptr) {
    return Json(text->get());
  }
  if (const auto* whole = node.as_integer(); whole != nullptr) {
    return whole->get() >= 0 ? Json(static_cast<std::uint64_t>(whole->get())) : Json(whole->get());
  }
  if (const auto* flag = node.as_boolean(); flag != nullptr) {
    return Json(flag->get());
  }
  if (const auto* real = node.as_floating_point(); real != nullptr && std::isfinite(real->get())) {
    return Json(real->get());
  }
  return at_line(path, node.source().begin.line, "dates, times and endless numbers mean nothing");
}

}  // namespace

Status check_toml_text(std::string_view text, std::string_view path) {
  if (text.size() > kLargestConfig) {
    return at_line(path, 0, "the file is larger than 64k");
  }
  std::uint64_t line = 1;
  while (!text.empty()) {
    const std::string_view row = text.substr(0, text.find('\n'));
    if (std::count(row.begin(), row.end(), '.') > kMostDotsInALine) {
      return at_line(path, line, "more than 256 dots in one line");
    }
    text.remove_prefix(std::min(row.size() + 1, text.size()));
    ++line;
  }
  return {};
}

Result<Json> parse_toml_json(std::string_view text, std::string_view path) {
  CARREL_TRY(check_toml_text(text, path));
  try {
    const toml::table document = toml::parse(text);
    return to_json(document, path);
  } catch (const toml::parse_error& error) {
    return at_line(path, error.source().begin.line, printable(error.description()));
  } catch (const BrokenExpectation&) {
    return at_line(path, 0, "not TOML: a bracket or brace is out of place");
  }
}

}  // namespace carrel::policy
