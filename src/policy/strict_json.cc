#include "policy/strict_json.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "policy/given.h"

namespace carrel::policy {
namespace {

using Json = nlohmann::ordered_json;

// An object is looked through from its beginning for each of its members.
constexpr std::size_t kMostMembers = 4096;

Error bad(std::string message) { return {Code::kInvalid, 0, std::move(message), {}}; }

// Counts what comes while the document is built, and stops where it is too much.
class Checked {
 public:
  explicit Checked(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end && !keys_.empty()) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key && !keys_.empty() &&
               !keys_.back().insert(value.get<std::string>()).second) {
      note("the key " + quote(value.get<std::string>()) + " is there twice");
    }
    if (!keys_.empty() && keys_.back().size() > kMostMembers) {
      note("an object of the JSON has more than " + std::to_string(kMostMembers) + " members");
    }
    if (depth > limits_.deepest) {
      note("the JSON is nested more than " + std::to_string(limits_.deepest) + " deep");
    }
    if (++values_ > limits_.most_values) {
      note("the JSON has more than " + std::to_string(limits_.most_values) + " values");
    }
    return problem_.empty();
  }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void note(std::string problem) {
    if (problem_.empty()) {
      problem_ = std::move(problem);
    }
  }

  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;
  std::size_t values_ = 0;
  std::string problem_;
};

// The parser builds what it reads on a stack of its own; a document is destroyed recursively, so
// its depth is looked at before there is one.
bool too_deep(std::string_view text, int deepest) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      i += c == '\\' ? 1 : 0;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest) {
        return true;
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<nlohmann::ordered_json> parse_strict_json(std::string_view text, const JsonLimits& limits) {
  if (!valid_utf8(text) || text.starts_with("\xef\xbb\xbf")) {
    return bad(std::string(limits.what) + " is not UTF-8");
  }
  if (too_deep(text, limits.deepest)) {
    return bad("the JSON is nested more than " + std::to_string(limits.deepest) + " deep");
  }
  Checked checked(limits);
  Json document = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& value) {
        return checked(depth, event, value);
      },
      false);
  if (!checked.problem().empty()) {
    return bad(checked.problem());
  }
  if (document.is_discarded()) {
    return bad(std::string(limits.what) + " is not JSON");
  }
  return document;
}

}  // namespace carrel::policy
