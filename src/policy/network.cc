#include "policy/network.h"

#include <algorithm>
#include <array>
#include <span>

#include "policy/suggest.h"

namespace carrel::policy {
namespace {

struct Preset {
  std::string_view name;
  std::span<const std::string_view> rules;
};

constexpr std::array<std::string_view, 2> kPypi = {"pypi.org", "files.pythonhosted.org"};
constexpr std::array<std::string_view, 1> kNpm = {"registry.npmjs.org"};
constexpr std::array<std::string_view, 4> kDebian = {"http:GET+HEAD:deb.debian.org",
                                                     "http:GET+HEAD:security.debian.org",
                                                     "deb.debian.org", "security.debian.org"};
constexpr std::array<std::string_view, 5> kGithub = {"github.com", "tcp:github.com:22",
                                                     "api.github.com", "codeload.github.com",
                                                     "*.githubusercontent.com"};
constexpr std::array<std::string_view, 3> kCrates = {"crates.io", "index.crates.io",
                                                     "static.crates.io"};
constexpr std::array<std::string_view, 2> kGo = {"proxy.golang.org", "sum.golang.org"};
constexpr std::array kPresets = {Preset{"pypi", kPypi},     Preset{"npm", kNpm},
                                 Preset{"debian", kDebian}, Preset{"github", kGithub},
                                 Preset{"crates", kCrates}, Preset{"go", kGo}};

constexpr std::string_view kAllow = "allow=";
constexpr std::string_view kDeny = "deny=";
constexpr std::string_view kFullAnd = "full,";

enum class ListOf { kRules, kDenials };

Error unknown_policy(const Given& given) {
  constexpr std::array<std::string_view, 4> kWords = {"none", "full", "allow", "deny"};
  if (given.text == "allow" || given.text == "deny") {
    return bad_value(given, "it names nothing", concat({given.text, "=HOST,..."}));
  }
  std::string hint = did_you_mean(given.text.substr(0, given.text.find('=')), kWords);
  if (hint.empty() && parse_rule_or_preset({given.name, given.text}).ok()) {
    hint = concat({"did you mean 'allow=", printable(given.text, 60), "'?"});
  }
  return bad_value(given, "unknown network policy",
                   hint.empty() ? "none, full, allow=HOST,... or deny=HOST,..." : std::move(hint));
}

// Adds the rules of a list with commas, each of them once.
Status add_rules(NetworkPolicy& policy, const Given& given, std::string_view list, ListOf kind) {
  for (;;) {
    const std::size_t comma = list.find(',');
    std::string item(list.substr(0, comma));
    if (item.empty()) {
      return bad_value(given, "a rule in the list is empty");
    }
    if (kind == ListOf::kDenials && !item.starts_with("deny:")) {
      item.insert(0, "deny:");
    }
    CARREL_ASSIGN(std::vector<NetworkRule> rules, parse_rule_or_preset({given.name, item}));
    for (NetworkRule& rule : rules) {
      if (policy.mode == NetworkMode::kFull && rule.action == NetworkRule::Action::kAllow &&
          !std::holds_alternative<Prefix>(rule.target)) {
        return bad_value({given.name, item}, "'full' allows every public host already",
                         "leave it out; only addresses that are not public can be added");
      }
      if (std::find(policy.rules.begin(), policy.rules.end(), rule) == policy.rules.end()) {
        policy.rules.push_back(std::move(rule));
      }
    }
    if (policy.rules.size() > kMostNetworkRules) {
      return bad_value(given, concat({"more than ", std::to_string(kMostNetworkRules), " rules"}));
    }
    if (comma == std::string_view::npos) {
      return {};
    }
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

bool NetworkPolicy::ends_tls() const {
  return mode != NetworkMode::kNone &&
         (!credentials.empty() ||
          std::any_of(rules.begin(), rules.end(), [](const NetworkRule& rule) {
            return rule.kind == NetworkRule::Kind::kHttps && rule.reads_requests();
          }));
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  names.reserve(kPresets.size());
  for (const Preset& preset : kPresets) {
    names.push_back(preset.name);
  }
  return names;
}

Result<std::vector<NetworkRule>> parse_rule_or_preset(const Given& given) {
  std::vector<NetworkRule> rules;
  const auto preset = std::find_if(kPresets.begin(), kPresets.end(), [&](const Preset& candidate) {
    return candidate.name == given.text;
  });
  if (preset == kPresets.end()) {
    CARREL_ASSIGN(NetworkRule rule, parse_rule(given));
    rules.push_back(std::move(rule));
    return rules;
  }
  for (const std::string_view text : preset->rules) {
    CARREL_ASSIGN(NetworkRule rule, parse_rule({given.name, text}));
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<NetworkPolicy> parse_network(const Given& given) {
  NetworkPolicy policy;
  if (given.text == "none") {
    return policy;
  }
  policy.mode = NetworkMode::kFull;
  if (given.text == "full") {
    return policy;
  }
  if (given.text.starts_with(kFullAnd)) {
    CARREL_TRY(add_rules(policy, given, given.text.substr(kFullAnd.size()), ListOf::kRules));
    return policy;
  }
  if (given.text.starts_with(kDeny)) {
    CARREL_TRY(add_rules(policy, given, given.text.substr(kDeny.size()), ListOf::kDenials));
    return policy;
  }
  if (!given.text.starts_with(kAllow)) {
    return unknown_policy(given);
  }
  policy.mode = NetworkMode::kRules;
  // CRITICAL: a list with nothing in it allows nothing.
  if (given.text.size() > kAllow.size()) {
    CARREL_TRY(add_rules(policy, given, given.text.substr(kAllow.size()), ListOf::kRules));
  }
  return policy;
}

std::string network_text(const NetworkPolicy& policy) {
  std::string list;
  for (const NetworkRule& rule : policy.rules) {
    list += list.empty() ? "" : ",";
    list += rule_text(rule);
  }
  switch (policy.mode) {
    case NetworkMode::kNone:
      break;
    case NetworkMode::kRules:
      return concat({kAllow, list});
    case NetworkMode::kFull:
      return list.empty() ? "full" : concat({kFullAnd, list});
  }
  return "none";
}

}  // namespace carrel::policy
