#include "agent/model_choice.h"

#include <fcntl.h>

#include <cstdlib>

#include "agent/http_model.h"
#include "agent/scripted.h"
#include "base/files.h"
#include "policy/config.h"
#include "storage/secrets.h"

namespace carrel::agent {
namespace {

std::string variable(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string prefix_of(const std::string& provider) {
  return provider == "anthropic" ? "ANTHROPIC" : "OPENAI";
}

Result<std::string> find_key(const storage::Home& home, const ModelChoice& choice) {
  if (choice.key.starts_with("env:")) {
    const std::string name = choice.key.substr(4);
    const std::string key = variable(name);
    return key.empty() ? Result<std::string>(Error{
                             Code::kNotFound,
                             0,
                             "the variable '" + name + "', which has the model's key, is not set",
                             {}})
                       : key;
  }
  CARREL_ASSIGN(const storage::Secrets secrets, storage::Secrets::open(home));
  if (choice.key.starts_with("secret:")) {
    return secrets.read(choice.key.substr(7));
  }
  if (const std::string key = variable(prefix_of(choice.provider) + "_API_KEY"); !key.empty()) {
    return key;
  }
  auto secret = secrets.read(choice.provider);
  return secret.ok() ? secret : Result<std::string>(std::string());
}

}  // namespace

Status choose_model(std::string_view text, ModelChoice& choice) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return Error{Code::kInvalid, 0, "'" + std::string(text) + "' names no model",
                 "PROVIDER:NAME, where PROVIDER is anthropic or openai"};
  }
  choice.provider = text.substr(0, colon);
  choice.name = text.substr(colon + 1);
  return {};
}

Result<std::unique_ptr<Model>> make_model(const storage::Home& home, ModelChoice choice) {
  if (choice.provider.empty()) {
    const std::string chosen = variable("CARREL_MODEL");
    if (chosen.empty()) {
      return Error{Code::kInvalid, 0, "no model is chosen",
                   "--model PROVIDER:NAME, [model] in the profile, or CARREL_MODEL; --script FILE "
                   "does without one"};
    }
    CARREL_TRY(choose_model(chosen, choice));
  }
  if (choice.provider == "scripted") {
    auto text = read_file_at(AT_FDCWD, choice.name, policy::kLargestConfig);
    if (!text.ok()) {
      text.error().message = "the script: " + text.error().message;
      return text.error();
    }
    return make_scripted_model(text.value(), choice.name);
  }
  ModelSettings settings;
  settings.provider = choice.provider;
  settings.name = choice.name;
  settings.base_url = choice.base_url.empty() ? variable(prefix_of(choice.provider) + "_BASE_URL")
                                              : choice.base_url;
  settings.max_tokens = choice.max_tokens;
  settings.temperature = choice.temperature;
  settings.retries.most = static_cast<int>(choice.retries);
  settings.retries.first_pause = choice.retry_delay;
  CARREL_ASSIGN(settings.key, find_key(home, choice));
  return make_http_model(std::move(settings));
}

}  // namespace carrel::agent
