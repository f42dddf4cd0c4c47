#include "policy/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/utf8.h"
#include "policy/suggest.h"

namespace carrel::policy {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 16;
constexpr std::size_t kLongestShown = 60;

constexpr std::array<std::string_view, 18> kKnown = {
    "type",      "properties", "required",    "additionalProperties",
    "items",     "enum",       "minimum",     "maximum",
    "minLength", "maxLength",  "title",       "maxItems",
    "minItems",  "default",    "description", "examples",
    "$schema",   "const"};
constexpr std::array<std::string_view, 7> kTypes = {"object", "array",   "string", "integer",
                                                    "number", "boolean", "null"};

Error invalid(std::string message, std::string hint = {}) {
  return {Code::kInvalid, 0, std::move(message), std::move(hint)};
}

Error bad_schema(const std::string& place, const std::string& why) {
  return invalid("the schema of " + place + " " + why);
}

bool is_type(const Json& type) {
  return type.is_string() && std::find(kTypes.begin(), kTypes.end(),
                                       type.get_ref<const std::string&>()) != kTypes.end();
}

// What a schema has as its type: one, or any of several.
std::vector<Json> types_of(const Json& type) {
  return type.is_array() ? std::vector<Json>(type.begin(), type.end()) : std::vector<Json>{type};
}

Status check_node(const Json& schema, const std::string& place, int depth) {
  if (!schema.is_object()) {
    return bad_schema(place, "is not an object");
  }
  if (depth > kDeepest) {
    return bad_schema(place, "is nested too deep");
  }
  for (const auto& [key, value] : schema.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) {
      return bad_schema(place, "has '" + key + "', which is not supported");
    }
  }
  if (const auto type = schema.find("type"); type != schema.end()) {
    const std::vector<Json> types = types_of(*type);
    if (types.empty() || !std::all_of(types.begin(), types.end(), is_type)) {
      return bad_schema(place, "has a type that is not one of JSON's");
    }
  }
  if (const auto list = schema.find("enum");
      list != schema.end() && (!list->is_array() || list->empty())) {
    return bad_schema(place, "has an 'enum' that is not a list");
  }
  for (const char* key : {"minimum", "maximum", "minLength", "maxLength", "maxItems", "minItems"}) {
    if (const auto bound = schema.find(key); bound != schema.end() && !bound->is_number()) {
      return bad_schema(place, std::string("has a '") + key + "' that is not a number");
    }
  }
  if (const auto more = schema.find("additionalProperties");
      more != schema.end() && !more->is_boolean()) {
    return bad_schema(place, "has 'additionalProperties' that is not true or false");
  }
  if (const auto names = schema.find("required"); names != schema.end()) {
    if (!names->is_array() || !std::all_of(names->begin(), names->end(),
                                           [](const Json& name) { return name.is_string(); })) {
      return bad_schema(place, "has a 'required' that is not a list of names");
    }
  }
  if (const auto items = schema.find("items"); items != schema.end()) {
    CARREL_TRY(check_node(*items, place + "[]", depth + 1));
  }
  if (const auto properties = schema.find("properties"); properties != schema.end()) {
    if (!properties->is_object()) {
      return bad_schema(place, "has 'properties' that are not an object");
    }
    for (const auto& [name, node] : properties->items()) {
      CARREL_TRY(check_node(node, place + "." + name, depth + 1));
    }
  }
  return {};
}

// Characters, as a schema counts them.
std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") {
    return value.is_object();
  }
  if (type == "array") {
    return value.is_array();
  }
  if (type == "string") {
    return value.is_string();
  }
  if (type == "boolean") {
    return value.is_boolean();
  }
  if (type == "null") {
    return value.is_null();
  }
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
  }
  return value.is_number();
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongestShown) {
    text.resize(kLongestShown);
    text += "...";
  }
  return text;
}

std::string article(const std::string& type) {
  return (type == "object" || type == "array" || type == "integer" ? "an " : "a ") + type;
}

// The whole is named in words, a part of it by its name.
std::string said(const std::string& name, int depth) {
  return depth == 0 ? name : "'" + name + "'";
}

Status check_bounds(const Json& schema, const Json& value, const std::string& name, int depth) {
  const auto number = [&](const char* key) -> const Json* {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  };
  if (value.is_number()) {
    if (const Json* least = number("minimum"); least != nullptr && value < *least) {
      return invalid(said(name, depth) + " is less than " + least->dump());
    }
    if (const Json* most = number("maximum"); most != nullptr && value > *most) {
      return invalid(said(name, depth) + " is more than " + most->dump());
    }
  }
  const auto within = [&](std::size_t size, const char* least, const char* most,
                          const std::string& unit) -> Status {
    if (const Json* bound = number(least);
        bound != nullptr && static_cast<double>(size) < bound->get<double>()) {
      return invalid(said(name, depth) + " has less than " + bound->dump() + " " + unit);
    }
    if (const Json* bound = number(most);
        bound != nullptr && static_cast<double>(size) > bound->get<double>()) {
      return invalid(said(name, depth) + " has more than " + bound->dump() + " " + unit);
    }
    return {};
  };
  if (value.is_string()) {
    CARREL_TRY(within(length_of(value.get_ref<const std::string&>()), "minLength", "maxLength",
                      "characters"));
  }
  if (value.is_array()) {
    CARREL_TRY(within(value.size(), "minItems", "maxItems", "items"));
  }
  return {};
}

Status check_value(const Json& schema, const Json& value, const std::string& name, int depth);

Status check_object(const Json& schema, const Json& value, const std::string& name, int depth) {
  const auto properties = schema.find("properties");
  const bool top = depth == 0;
  const auto child = [&](const std::string& key) { return top ? key : name + "." + key; };
  if (const auto required = schema.find("required"); required != schema.end()) {
    for (const Json& key : *required) {
      if (!value.contains(key.get<std::string>())) {
        return invalid(said(name, depth) + " needs '" + key.get<std::string>() + "'");
      }
    }
  }
  for (const auto& [key, part] : value.items()) {
    if (properties != schema.end() && properties->contains(key)) {
      CARREL_TRY(check_value((*properties)[key], part, child(key), depth + 1));
    } else if (!schema.value("additionalProperties", true)) {
      std::vector<std::string_view> names;
      if (properties != schema.end()) {
        for (const auto& entry : properties->items()) {
          names.push_back(entry.key());
        }
      }
      return invalid(said(name, depth) + " has no '" +
                         replace_invalid_utf8(key.substr(0, kLongestShown)) + "'",
                     did_you_mean(key, names));
    }
  }
  return {};
}

Status check_value(const Json& schema, const Json& value, const std::string& name, int depth) {
  if (depth > kDeepest) {
    return invalid(said(name, depth) + " is nested too deep");
  }
  if (const auto type = schema.find("type"); type != schema.end()) {
    std::string wanted;
    bool fits = false;
    for (const Json& one : types_of(*type)) {
      const auto& name_of_it = one.get_ref<const std::string&>();
      wanted += (wanted.empty() ? "" : " or ") + article(name_of_it);
      fits = fits || has_type(value, name_of_it);
    }
    if (!fits) {
      return invalid(said(name, depth) + " must be " + wanted + ", not " + shown(value));
    }
  }
  if (const auto only = schema.find("const"); only != schema.end() && value != *only) {
    return invalid(said(name, depth) + " must be " + shown(*only) + ", not " + shown(value));
  }
  if (const auto list = schema.find("enum"); list != schema.end()) {
    if (std::find(list->begin(), list->end(), value) == list->end()) {
      std::string choices;
      for (const Json& choice : *list) {
        choices += (choices.empty() ? "" : ", ") +
                   (choice.is_string() ? choice.get<std::string>() : choice.dump());
      }
      return invalid(said(name, depth) + " is " + shown(value), "one of " + choices);
    }
  }
  CARREL_TRY(check_bounds(schema, value, name, depth));
  if (value.is_object()) {
    CARREL_TRY(check_object(schema, value, name, depth));
  }
  if (value.is_array()) {
    if (const auto items = schema.find("items"); items != schema.end()) {
      for (const Json& item : value) {
        CARREL_TRY(check_value(*items, item, name + "[]", depth + 1));
      }
    }
  }
  return {};
}

}  // namespace

Status check_schema(const Json& schema, std::string_view what) {
  return check_node(schema, std::string(what), 0);
}

Status check_against_schema(const Json& schema, const Json& value, std::string_view what) {
  return check_value(schema, value, std::string(what), 0);
}

}  // namespace carrel::policy
