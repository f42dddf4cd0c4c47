#include "journal/waits.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "journal/json_text.h"

namespace carrel::journal {
namespace {

Error unsupported(const std::string& what) {
  return Error{Code::kUnsupported, 0, "the schema of a wait " + what,
               "see SPECIFICATION.md for what a schema can say"};
}

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

bool is_type(const Json& type) {
  return type.is_string() && std::find(kTypes.begin(), kTypes.end(),
                                       type.get_ref<const std::string&>()) != kTypes.end();
}

Status check_schema_json(const Json& schema);

Status check_members(const std::string& key, const Json& value) {
  if (key == "type") {
    const bool several =
        value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_type);
    return several || is_type(value) ? Status{} : Status{unsupported("has an unknown type")};
  }
  if (key == "properties") {
    if (!value.is_object()) {
      return unsupported("has properties that are no object");
    }
    for (const Json& property : value) {
      CARREL_TRY(check_schema_json(property));
    }
    return {};
  }
  if (key == "items") {
    return check_schema_json(value);
  }
  if (key == "enum" || key == "required") {
    const bool texts =
        std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_string(); });
    return value.is_array() && !value.empty() && (key == "enum" || texts)
               ? Status{}
               : Status{unsupported("has a '" + key + "' that is no list")};
  }
  if (key == "additionalProperties") {
    return value.is_boolean() ? Status{}
                              : Status{unsupported("has additionalProperties that are no boolean")};
  }
  if (key == "minimum" || key == "maximum") {
    return value.is_number() ? Status{} : Status{unsupported("has a '" + key + "' of no number")};
  }
  if (key == "minLength" || key == "maxLength" || key == "minItems" || key == "maxItems") {
    return value.is_number_unsigned() ? Status{}
                                      : Status{unsupported("has a '" + key + "' of no count")};
  }
  if (key == "const" || key == "title" || key == "description" || key == "default") {
    return {};
  }
  return unsupported("has '" + key + "', which cannot be checked");
}

Status check_schema_json(const Json& schema) {
  if (!schema.is_object()) {
    return unsupported("is no object");
  }
  for (const auto& member : schema.items()) {
    CARREL_TRY(check_members(member.key(), member.value()));
  }
  return {};
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
  }
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null());
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

// Holds an answer against a schema that check_schema_json() has passed.
class Checker {
 public:
  Status check(const Json& schema, const Json& value, const std::string& where) {
    if (const auto type = schema.find("type"); type != schema.end()) {
      const Json types = type->is_array() ? *type : Json::array({*type});
      const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& one) {
        return has_type(value, one.get<std::string>());
      });
      CARREL_TRY(need(fits, where, "is not of the type " + to_text(*type)));
    }
    if (const auto values = schema.find("enum"); values != schema.end()) {
      const bool known = std::find(values->begin(), values->end(), value) != values->end();
      CARREL_TRY(need(known, where, "is none of " + to_text(*values)));
    }
    if (const auto only = schema.find("const"); only != schema.end()) {
      CARREL_TRY(need(value == *only, where, "is not " + to_text(*only)));
    }
    if (value.is_number()) {
      const auto number = value.get<double>();
      CARREL_TRY(need(number >= schema.value("minimum", number), where, "is too small"));
      CARREL_TRY(need(number <= schema.value("maximum", number), where, "is too large"));
    }
    if (value.is_string()) {
      CARREL_TRY(count(schema, "Length", characters(value.get_ref<const std::string&>()), where));
    }
    if (value.is_array()) {
      CARREL_TRY(count(schema, "Items", value.size(), where));
    }
    return value.is_array() ? elements(schema, value, where) : members(schema, value, where);
  }

 private:
  static Status need(bool right, const std::string& where, const std::string& wrong) {
    return right ? Status{}
                 : Status{Error{Code::kInvalid, 0, "the answer" + where + " " + wrong, {}}};
  }
  static Status count(const Json& schema, const std::string& of, std::size_t size,
                      const std::string& where) {
    CARREL_TRY(need(size >= schema.value("min" + of, size), where, "is too short"));
    return need(size <= schema.value("max" + of, size), where, "is too long");
  }
  Status elements(const Json& schema, const Json& value, const std::string& where) {
    const auto items = schema.find("items");
    for (std::size_t i = 0; items != schema.end() && i < value.size(); ++i) {
      CARREL_TRY(check(*items, value[i], where + "/" + std::to_string(i)));
    }
    return {};
  }
  Status members(const Json& schema, const Json& value, const std::string& where) {
    if (!value.is_object()) {
      return {};
    }
    for (const Json& name : schema.value("required", Json::array())) {
      CARREL_TRY(need(value.contains(name.get<std::string>()), where, "lacks " + to_text(name)));
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& member : value.items()) {
      const auto property = properties.find(member.key());
      if (property != properties.end()) {
        CARREL_TRY(check(*property, member.value(), where + "/" + member.key()));
        continue;
      }
      CARREL_TRY(need(schema.value("additionalProperties", true), where,
                      "has '" + member.key() + "', which was not asked for"));
    }
    return {};
  }
};

}  // namespace

std::string wait_name(std::size_t index, std::string_view question) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(question.data(), question.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::string name = "ask_question:" + std::to_string(index) + ":";
  for (std::size_t i = 0; i < 4; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[digest[i] >> 4U];
    name += kDigits[digest[i] & 15U];
  }
  return name;
}

Status check_schema(std::string_view schema) {
  if (schema.empty()) {
    return {};
  }
  CARREL_ASSIGN(const Json json, parse_json(schema, "the schema of a wait"));
  return check_schema_json(json);
}

Status check_answer(std::string_view schema, std::string_view answer) {
  CARREL_ASSIGN(const Json value, parse_json(answer, "the answer"));
  if (schema.empty()) {
    return {};
  }
  CARREL_ASSIGN(const Json json, parse_json(schema, "the schema of a wait"));
  CARREL_TRY(check_schema_json(json));
  return Checker().check(json, value, "");
}

}  // namespace carrel::journal
