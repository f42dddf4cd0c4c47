#include <nlohmann/json.hpp>

#include "base/json_writer.h"
#include "policy/credential.h"
#include "policy/network.h"

namespace carrel::policy {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kUnlimitedWord = "unlimited";

void write_bytes(JsonWriter& object, std::string_view name, std::uint64_t bytes) {
  object.key(name);
  bytes == NetworkBudgets::kUnlimited ? object.value(kUnlimitedWord) : object.value(bytes);
}

std::string_view mode_name(NetworkMode mode) {
  switch (mode) {
    case NetworkMode::kNone:
      break;
    case NetworkMode::kRules:
      return "rules";
    case NetworkMode::kFull:
      return "full";
  }
  return "none";
}

Error damaged(std::string_view why) {
  return Error{Code::kInvalid, 0, concat({"a network policy is damaged: ", why}), {}};
}

// A whole number that is not zero and fits, or, for bytes, the word.
template <typename Number>
Status read_budget(const OrderedJson& budgets, const char* name, Number& number) {
  const OrderedJson& value = budgets.at(name);
  constexpr bool kBytes = sizeof(Number) == sizeof(std::uint64_t);
  if (kBytes && value == OrderedJson(kUnlimitedWord)) {
    number = std::numeric_limits<Number>::max();
    return {};
  }
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
      value.get<std::uint64_t>() > std::numeric_limits<Number>::max()) {
    return damaged(concat({name, " is not a number that it can have"}));
  }
  number = value.get<Number>();
  return {};
}

// The rules go through the same reader as those that people write.
Result<NetworkPolicy> read(const OrderedJson& object) {
  const std::string mode = object.at("mode").get<std::string>();
  std::string text;
  for (const OrderedJson& rule : object.at("rules")) {
    const std::string item = rule.get<std::string>();
    if (item.empty() || item.find(',') != std::string::npos) {
      return damaged("a rule is empty or has a comma");
    }
    text += (text.empty() ? "" : ",") + item;
  }
  if (mode == "none" && !text.empty()) {
    return damaged("it has rules and no network");
  }
  if (mode == "rules") {
    text.insert(0, "allow=");
  } else if (mode == "none" || mode == "full") {
    text.insert(0, text.empty() ? mode : mode + ",");
  } else {
    return damaged("its mode is none of none, rules and full");
  }
  CARREL_ASSIGN(NetworkPolicy policy, parse_network({"network", text}));
  const OrderedJson& budgets = object.at("budgets");
  CARREL_TRY(read_budget(budgets, "bytes_out", policy.budgets.bytes_out));
  CARREL_TRY(read_budget(budgets, "bytes_in", policy.budgets.bytes_in));
  CARREL_TRY(read_budget(budgets, "connections", policy.budgets.connections));
  CARREL_TRY(read_budget(budgets, "lookups_per_minute", policy.budgets.lookups_per_minute));
  for (const OrderedJson& item :
       object.contains("credentials") ? object.at("credentials") : OrderedJson::array()) {
    CARREL_ASSIGN(Credential credential, parse_credential({"credential", item.get<std::string>()}));
    policy.credentials.push_back(std::move(credential));
  }
  return policy;
}

}  // namespace

std::string network_to_json(const NetworkPolicy& policy) {
  JsonWriter object;
  object.open_object().field("mode", mode_name(policy.mode)).key("rules").open_array();
  for (const NetworkRule& rule : policy.rules) {
    object.value(rule_text(rule));
  }
  object.close_array().key("budgets").open_object();
  write_bytes(object, "bytes_out", policy.budgets.bytes_out);
  write_bytes(object, "bytes_in", policy.budgets.bytes_in);
  object.field("connections", policy.budgets.connections)
      .field("lookups_per_minute", policy.budgets.lookups_per_minute)
      .close_object();
  if (!policy.credentials.empty()) {
    object.key("credentials").open_array();
    for (const Credential& credential : policy.credentials) {
      object.value(credential_text(credential));
    }
    object.close_array();
  }
  object.close_object();
  return std::move(object).text();
}

Result<NetworkPolicy> network_from_json(std::string_view text) {
  try {
    return read(OrderedJson::parse(text));
  } catch (const nlohmann::json::exception& error) {
    return damaged(error.what());
  }
}

}  // namespace carrel::policy
