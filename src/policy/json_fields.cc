#include "policy/json_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/given.h"
#include "policy/names.h"
#include "policy/size.h"
#include "policy/suggest.h"

namespace carrel::policy {
namespace {

Error bad(std::string message) { return {Code::kInvalid, 0, std::move(message), {}}; }

}  // namespace

Fields::Fields(const Json& object, std::string_view what) : object_(object) {
  if (!object.is_object()) {
    error_ = bad(std::string(what) + " is not a JSON object");
  }
}

const Fields::Json* Fields::take(std::string_view name) {
  known_.emplace_back(name);
  if (!object_.is_object()) {
    return nullptr;
  }
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::refuse(std::string_view name, std::string_view wanted) {
  if (!error_.has_value()) {
    error_ = bad("'" + std::string(name) + "' must be " + std::string(wanted));
  }
}

const Fields::Json* Fields::any(std::string_view name) { return take(name); }

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    refuse(name, "a string");
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::string Fields::needed_text(std::string_view name) {
  auto value = text(name);
  if (!value.has_value() && !missing_.has_value()) {
    missing_ = bad("'" + std::string(name) + "' is missing");
  }
  return value.value_or("");
}

std::optional<bool> Fields::flag(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    refuse(name, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::uint64_t> Fields::number(std::string_view name, std::uint64_t most) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > most) {
    refuse(name, "a whole number from 0 to " + std::to_string(most));
    return std::nullopt;
  }
  return value->get<std::uint64_t>();
}

std::optional<std::chrono::milliseconds> Fields::duration(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->is_string()) {
    const std::string text = value->get<std::string>();
    auto parsed = parse_duration({name, text});
    if (parsed.ok()) {
      return parsed.value();
    }
    if (!error_.has_value()) {
      error_ = parsed.error();
    }
    return std::nullopt;
  }
  constexpr double kMost = 30.0 * 24 * 3600;
  const double seconds = value->is_number() ? value->get<double>() : -1;
  if (!(seconds >= 0.001 && seconds <= kMost)) {
    refuse(name, "a number of seconds from 0.001 to 2592000, or a text such as \"2m\"");
    return std::nullopt;
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(seconds * 1000)));
}

std::optional<std::vector<std::string>> Fields::texts(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> texts;
  bool good = value->is_array();
  for (std::size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_string();
    if (good) {
      texts.push_back((*value)[i].get<std::string>());
    }
  }
  if (!good) {
    refuse(name, "an array of strings");
    return std::nullopt;
  }
  return texts;
}

std::vector<std::string> Fields::variables(std::string_view name) {
  const Json* value = take(name);
  std::vector<std::string> variables;
  if (value == nullptr) {
    return variables;
  }
  if (!value->is_object()) {
    refuse(name, "an object of strings");
    return variables;
  }
  for (const auto& [key, text] : value->items()) {
    if (!text.is_string() || key.find('=') != std::string::npos) {
      refuse(name, "an object of strings");
      return {};
    }
    const std::string pair = key + "=" + text.get<std::string>();
    if (auto parsed = parse_variable({name, pair}); !parsed.ok()) {
      error_ = error_.has_value() ? error_ : parsed.error();
      return {};
    }
    variables.push_back(pair);
  }
  return variables;
}

Status Fields::finish() const {
  if (error_.has_value()) {
    return *error_;
  }
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      const std::vector<std::string_view> names(known_.begin(), known_.end());
      const std::string question = did_you_mean(key, names);
      return bad("unknown key " + quote(key) + (question.empty() ? "" : "; " + question));
    }
  }
  if (missing_.has_value()) {
    return *missing_;
  }
  return {};
}

}  // namespace carrel::policy
