#include "agent/profile.h"

#include <algorithm>

#include "agent/json_value.h"
#include "policy/json_fields.h"
#include "policy/settings.h"
#include "policy/suggest.h"
#include "policy/toml_json.h"
#include "tools/registry.h"

namespace carrel::agent {
namespace {

using policy::Fields;

constexpr std::uint64_t kMost = 1'000'000'000'000;
constexpr std::string_view kSandboxedNames[] = {"all", "code", "files", "none"};

Error invalid_profile(std::string message, std::string hint = {}) {
  return {Code::kInvalid, 0, std::move(message), std::move(hint)};
}

Result<std::optional<double>> real(Fields& fields, std::string_view name) {
  const Json* value = fields.any(name);
  if (value == nullptr) {
    return std::optional<double>();
  }
  if (!value->is_number() || value->get<double>() < 0) {
    return invalid_profile("'" + std::string(name) + "' must be a number that is not negative");
  }
  return std::optional<double>(value->get<double>());
}

Result<std::string> object_text(Fields& fields, std::string_view name) {
  const Json* value = fields.any(name);
  if (value == nullptr) {
    return std::string();
  }
  if (!value->is_object()) {
    return invalid_profile("'" + std::string(name) + "' must be a table");
  }
  return value->dump();
}

Result<ModelChoice> read_model(const Json& object) {
  Fields fields(object, "[model]");
  ModelChoice model;
  model.provider = fields.text("provider").value_or("");
  model.name = fields.text("name").value_or("");
  model.base_url = fields.text("base_url").value_or("");
  model.key = fields.text("key").value_or("");
  model.max_tokens = fields.number("max_tokens", kMost).value_or(model.max_tokens);
  model.retries = fields.number("retries", 100).value_or(model.retries);
  model.retry_delay = fields.duration("retry_delay").value_or(model.retry_delay);
  CARREL_ASSIGN(model.temperature, real(fields, "temperature"));
  CARREL_ASSIGN(const std::optional<double> input, real(fields, "input_price"));
  CARREL_ASSIGN(const std::optional<double> output, real(fields, "output_price"));
  model.input_price = input.value_or(0);
  model.output_price = output.value_or(0);
  CARREL_TRY(fields.finish());
  if (!model.key.empty() && !model.key.starts_with("env:") && !model.key.starts_with("secret:")) {
    // It is not repeated: somebody may have written the key itself.
    return invalid_profile("'key' of [model] says where the key is, and is not the key",
                           "env:NAME, or secret:NAME for one of `carrel secret`");
  }
  return model;
}

Result<AgentLimits> read_limits(const Json& object) {
  Fields fields(object, "[limits]");
  AgentLimits limits;
  limits.steps = fields.number("steps", 100'000).value_or(limits.steps);
  limits.tokens = fields.number("tokens", kMost).value_or(limits.tokens);
  limits.time = fields.duration("time").value_or(limits.time);
  CARREL_TRY(fields.finish());
  if (limits.steps == 0 || limits.tokens == 0 || limits.time.count() == 0) {
    return invalid_profile("a limit of [limits] is 0", "zero is never \"unlimited\"");
  }
  return limits;
}

Result<ServiceSpec> read_service(const std::string& name, const Json& object) {
  const std::string what = "[services." + name + "]";
  Fields fields(object, what);
  ServiceSpec service;
  service.name = name;
  service.description = fields.needed_text("description");
  service.command = fields.texts("command").value_or(std::vector<std::string>());
  service.timeout = fields.duration("timeout").value_or(service.timeout);
  const Json* schema = fields.any("arguments");
  CARREL_TRY(fields.finish());
  if (service.command.empty()) {
    return invalid_profile(what + " has no command", "command = [\"program\", \"word\"]");
  }
  const Json shape = schema == nullptr ? Json{{"type", "object"}} : *schema;
  Status good = tools::check_parameters(shape);
  if (!good.ok()) {
    good.error().message = what + ": " + good.error().message;
    return good.error();
  }
  service.arguments = shape.dump();
  return service;
}

Status check_services(const Profile& profile) {
  std::vector<std::string_view> names;
  for (const ServiceSpec& service : profile.services) {
    names.push_back(service.name);
  }
  for (const std::string& allowed : profile.allowed_services) {
    if (std::find(names.begin(), names.end(), allowed) == names.end()) {
      return invalid_profile("there is no service '" + allowed + "'",
                             policy::did_you_mean(allowed, names));
    }
  }
  return {};
}

Result<Profile> read_profile(const Json& document) {
  Fields fields(document, "the profile");
  Profile profile;
  profile.name = fields.text("name").value_or(profile.name);
  profile.system_prompt = fields.text("system_prompt").value_or("");
  profile.tools = fields.texts("tools").value_or(profile.tools);
  profile.skills = fields.text("skills").value_or("");
  profile.folder = fields.text("folder").value_or("");
  profile.allowed_services = fields.texts("allowed_services").value_or(std::vector<std::string>());
  CARREL_ASSIGN(profile.sandbox, object_text(fields, "sandbox"));
  CARREL_ASSIGN(profile.mcp, object_text(fields, "mcp"));
  if (const std::optional<std::string> word = fields.text("sandboxed"); word.has_value()) {
    const auto* const found =
        std::find(std::begin(kSandboxedNames), std::end(kSandboxedNames), *word);
    if (found == std::end(kSandboxedNames)) {
      return invalid_profile("'sandboxed' is '" + *word + "'", "all, code, files or none");
    }
    profile.sandboxed = static_cast<Sandboxed>(found - std::begin(kSandboxedNames));
  }
  const Json* model = fields.any("model");
  const Json* limits = fields.any("limits");
  const Json* services = fields.any("services");
  CARREL_TRY(fields.finish());
  if (model != nullptr) {
    CARREL_ASSIGN(profile.model, read_model(*model));
  }
  if (limits != nullptr) {
    CARREL_ASSIGN(profile.limits, read_limits(*limits));
  }
  if (services != nullptr) {
    if (!services->is_object()) {
      return invalid_profile("'services' must be a table of tables");
    }
    for (const auto& [name, object] : services->items()) {
      CARREL_ASSIGN(ServiceSpec service, read_service(name, object));
      profile.services.push_back(std::move(service));
    }
  }
  CARREL_TRY(check_services(profile));
  policy::Spec trial = policy::default_spec(policy::Operation::kCreate);
  CARREL_TRY(apply_sandbox_settings(profile, trial));
  return profile;
}

// One value of a setting as it would be written on the command line.
Result<std::string> setting_text(const std::string& key, const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_boolean() || value.is_number()) {
    return value.dump();
  }
  return invalid_profile("'" + key +
                         "' of [sandbox] is neither a text nor a number, true or false");
}

Status apply_setting(const std::string& key, const Json& value, policy::Spec& spec) {
  const policy::Setting* setting = policy::find_setting(key);
  if (setting == nullptr || !setting->operations.has(policy::Operation::kCreate)) {
    std::vector<std::string_view> names;
    for (const policy::Setting& known : policy::settings()) {
      names.push_back(known.name);
    }
    return invalid_profile("[sandbox] has no '" + key + "'", policy::did_you_mean(key, names));
  }
  const std::string name = "'" + key + "' of [sandbox]";
  std::vector<std::string> texts;
  if (value.is_array() && setting->kind == policy::ValueKind::kNetwork) {
    std::string rules = "allow=";
    for (const Json& item : value) {
      CARREL_ASSIGN(const std::string text, setting_text(key, item));
      rules += (rules.ends_with('=') ? "" : ",") + text;
    }
    texts.push_back(rules);
  } else if (value.is_array() && setting->repeats()) {
    for (const Json& item : value) {
      CARREL_ASSIGN(texts.emplace_back(), setting_text(key, item));
    }
  } else if (value.is_object() && setting->kind == policy::ValueKind::kVariables) {
    for (const auto& [variable, item] : value.items()) {
      CARREL_ASSIGN(const std::string text, setting_text(key, item));
      texts.push_back(variable + "=" + text);
    }
  } else {
    CARREL_ASSIGN(texts.emplace_back(), setting_text(key, value));
  }
  for (const std::string& text : texts) {
    CARREL_TRY(setting->set(spec, {name, text}));
  }
  return {};
}

}  // namespace

Result<Profile> parse_profile(std::string_view text, std::string_view path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && text[first] == '{';
  auto document =
      json ? policy::parse_strict_json(text, {.what = path}) : policy::parse_toml_json(text, path);
  if (!document.ok()) {
    return document.error();
  }
  auto profile = read_profile(document.value());
  if (!profile.ok()) {
    profile.error().message = std::string(path) + ": " + profile.error().message;
  }
  return profile;
}

std::string profile_to_json(const Profile& profile) {
  const ModelChoice& model = profile.model;
  const auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  };
  Json object{{"name", profile.name},
              {"system_prompt", profile.system_prompt},
              {"tools", profile.tools},
              {"sandboxed", kSandboxedNames[static_cast<std::size_t>(profile.sandboxed)]},
              {"skills", profile.skills},
              {"folder", profile.folder},
              {"allowed_services", profile.allowed_services}};
  object["model"] = {{"provider", model.provider},
                     {"name", model.name},
                     {"base_url", model.base_url},
                     {"key", model.key},
                     {"max_tokens", model.max_tokens},
                     {"retries", model.retries},
                     {"retry_delay", seconds(model.retry_delay)},
                     {"input_price", model.input_price},
                     {"output_price", model.output_price}};
  if (model.temperature.has_value()) {
    object["model"]["temperature"] = *model.temperature;
  }
  object["limits"] = {{"steps", profile.limits.steps},
                      {"tokens", profile.limits.tokens},
                      {"time", seconds(profile.limits.time)}};
  for (const ServiceSpec& service : profile.services) {
    object["services"][service.name] = {{"description", service.description},
                                        {"command", service.command},
                                        {"timeout", seconds(service.timeout)},
                                        {"arguments", Json::parse(service.arguments)}};
  }
  for (const auto& [name, text] :
       {std::pair{"sandbox", &profile.sandbox}, std::pair{"mcp", &profile.mcp}}) {
    if (!text->empty()) {
      object[name] = Json::parse(*text);
    }
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status apply_sandbox_settings(const Profile& profile, policy::Spec& spec) {
  if (profile.sandbox.empty()) {
    return {};
  }
  const Json settings = Json::parse(profile.sandbox, nullptr, false);
  for (const auto& [key, value] : settings.items()) {
    CARREL_TRY(apply_setting(key, value, spec));
  }
  return {};
}

}  // namespace carrel::agent
