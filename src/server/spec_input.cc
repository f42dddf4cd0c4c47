#include "server/spec_input.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "policy/given.h"
#include "policy/mount_request.h"
#include "policy/network.h"
#include "policy/value_types.h"

namespace carrel::server {
namespace {

using policy::Setting;
using policy::ValueKind;

Error wrong_type(std::string_view key, std::string_view wanted) {
  return {Code::kInvalid, 0, "'" + std::string(key) + "' must be " + std::string(wanted), {}};
}

// The one value as text, if its type is one that the kind takes.
bool scalar_text(const Json& value, ValueKind kind, std::string& text) {
  const policy::ScalarTypes types = policy::scalar_types(kind);
  if (value.is_string() && types.string) {
    text = value.get<std::string>();
  } else if (value.is_number_integer() && types.whole) {
    text = value.is_number_unsigned() ? std::to_string(value.get<std::uint64_t>())
                                      : std::to_string(value.get<std::int64_t>());
  } else if (value.is_number_float() && types.fraction) {
    text = policy::number_text(value.get<double>());
  } else if (value.is_boolean() && types.flag) {
    text = value.get<bool>() ? "true" : "false";
  } else {
    return false;
  }
  return true;
}

// {"source": …, "target": …, "readonly": …}
Result<std::string> mount_text(std::string_view key, const Json& mount) {
  Fields fields(mount);
  const std::string source = fields.needed_text("source");
  const std::string target = fields.needed_text("target");
  const bool read_only = fields.flag("readonly").value_or(true);
  CARREL_TRY(fields.finish());
  // By itself first: a ':' in it would move the border between the two.
  CARREL_TRY(policy::check_mount_target({key, target}));
  return source + ":" + target + (read_only ? ":ro" : ":rw");
}

Status set_each(const Setting& setting, std::string_view key, const Json& list,
                policy::Spec& spec) {
  for (const Json& element : list) {
    std::string text;
    if (element.is_object() && setting.kind == ValueKind::kMounts) {
      CARREL_ASSIGN(text, mount_text(key, element));
    } else if (element.is_object() && setting.kind == ValueKind::kServices) {
      text = element.dump();
    } else if (element.is_string()) {
      text = element.get<std::string>();
    } else {
      return wrong_type(key, policy::wanted_types(setting.kind, policy::Notation::kJson));
    }
    CARREL_TRY(setting.set(spec, {key, text}));
  }
  return {};
}

Status set_rules(const Setting& setting, std::string_view key, const Json& rules,
                 policy::Spec& spec) {
  std::string text = "allow=";
  for (const Json& rule : rules) {
    if (!rule.is_string()) {
      return wrong_type(key, policy::wanted_types(setting.kind, policy::Notation::kJson));
    }
    // By itself first: a comma in it would make two of it.
    const std::string one = rule.get<std::string>();
    CARREL_TRY(policy::parse_rule_or_preset({key, one}));
    text += (text.ends_with('=') ? "" : ",") + one;
  }
  return setting.set(spec, {key, text});
}

Status set_variables(const Setting& setting, std::string_view key, const Json& table,
                     policy::Spec& spec) {
  for (const auto& [name, value] : table.items()) {
    if (!value.is_string() || name.find('=') != std::string::npos) {
      return wrong_type(key, policy::wanted_types(setting.kind, policy::Notation::kJson));
    }
    const std::string text = name + "=" + value.get<std::string>();
    CARREL_TRY(setting.set(spec, {key, text}));
  }
  return {};
}

// {"NAME": {"command": …, "ready": …}}
Status set_services(const Setting& setting, std::string_view key, const Json& table,
                    policy::Spec& spec) {
  for (const auto& [name, value] : table.items()) {
    if (!value.is_object() || value.contains("name")) {
      return wrong_type(key, policy::wanted_types(setting.kind, policy::Notation::kJson));
    }
    Json service = value;
    service["name"] = name;
    const std::string text = service.dump();
    CARREL_TRY(setting.set(spec, {key, text}));
  }
  return {};
}

Status set_one(const Setting& setting, std::string_view key, const Json& value,
               policy::Spec& spec) {
  std::string text;
  if (scalar_text(value, setting.kind, text)) {
    return setting.set(spec, {key, text});
  }
  if (value.is_array() && setting.repeats()) {
    return set_each(setting, key, value, spec);
  }
  if (value.is_array() && setting.kind == ValueKind::kNetwork) {
    return set_rules(setting, key, value, spec);
  }
  if (value.is_object() && setting.kind == ValueKind::kVariables) {
    return set_variables(setting, key, value, spec);
  }
  if (value.is_object() && setting.kind == ValueKind::kServices) {
    return set_services(setting, key, value, spec);
  }
  return wrong_type(key, policy::wanted_types(setting.kind, policy::Notation::kJson));
}

bool is_taken(const Setting& setting, policy::Operation operation) {
  return setting.operations.has(operation) && !setting.name.starts_with("allowed-");
}

Json schema_of(const Setting& setting) {
  const Json text{{"type", "string"}};
  const Json texts{{"type", "array"}, {"items", text}};
  const Json number{{"type", "number"}};
  switch (setting.kind) {
    case ValueKind::kSize:
    case ValueKind::kDuration:
      return {{"oneOf", Json::array({text, number})}};
    case ValueKind::kCores:
      return number;
    case ValueKind::kCount:
      return {{"type", "integer"}};
    case ValueKind::kFlag:
      return {{"type", "boolean"}};
    case ValueKind::kWords:
    case ValueKind::kNetwork:
      return {{"oneOf", Json::array({text, texts})}};
    case ValueKind::kVariables:
      return {{"oneOf",
               Json::array({Json{{"type", "object"}, {"additionalProperties", text}}, texts})}};
    case ValueKind::kMounts:
      return {{"type", "array"}};
    case ValueKind::kServices:
      return {{"oneOf", Json::array({Json{{"type", "object"},
                                          {"additionalProperties", {{"type", "object"}}}},
                                     Json{{"type", "array"}}})}};
    case ValueKind::kCredentials:
      return texts;
    case ValueKind::kText:
      break;
  }
  return text;
}

}  // namespace

Status read_settings(const Json& object, policy::Operation operation, Fields& fields,
                     policy::Spec& spec, manager::Chosen& chosen) {
  std::vector<const Setting*> given;
  for (const Setting& setting : policy::settings()) {
    if (is_taken(setting, operation)) {
      fields.allow(policy::key_name(setting.name));
    }
  }
  if (!object.is_object()) {
    return {};
  }
  for (const auto& [key, value] : object.items()) {
    const Setting* setting = policy::find_setting(key);
    if (setting == nullptr || value.is_null()) {
      continue;
    }
    if (!is_taken(*setting, operation)) {
      return Error{Code::kInvalid, 0, "'" + key + "' cannot be set by a request", {}};
    }
    if (std::find(given.begin(), given.end(), setting) != given.end()) {
      return Error{
          Code::kInvalid,
          0,
          "'" + key + "' is given twice: it sets " + policy::key_name(setting->name) + " again",
          {}};
    }
    given.push_back(setting);
    // Two keys for one thing: which of them holds would depend on their order.
    if (std::count_if(given.begin(), given.end(), [](const Setting* one) {
          return one->name == "network" || one->name == "network-enabled";
        }) > 1) {
      return Error{Code::kInvalid, 0, "network and network_enabled say the same thing twice", {}};
    }
    fields.allow(key);
    if (Status set = set_one(*setting, key, value, spec); !set.ok()) {
      // A value that this version does not take is a wrong one.
      set.error().code = set.error().code == Code::kUnavailable ? Code::kInvalid : set.error().code;
      return set;
    }
    if (setting->name == "workdir") {
      chosen.workdir = manager::Choice::kGiven;
    }
    if (setting->name == "user") {
      chosen.user = manager::Choice::kGiven;
    }
  }
  return {};
}

Json settings_schema(policy::Operation operation) {
  Json properties = Json::object();
  for (const Setting& setting : policy::settings()) {
    if (is_taken(setting, operation) && setting.offered != policy::Offered::kNotBuilt) {
      Json schema = schema_of(setting);
      schema["description"] = std::string(setting.help);
      properties[policy::key_name(setting.name)] = std::move(schema);
    }
  }
  return properties;
}

}  // namespace carrel::server
