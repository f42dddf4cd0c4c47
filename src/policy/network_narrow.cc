#include "policy/network_narrow.h"

#include <algorithm>

#include "policy/rule_match.h"

namespace carrel::policy {
namespace {

using Action = NetworkRule::Action;
using Kind = NetworkRule::Kind;

bool target_covers(const RuleTarget& wide, const RuleTarget& narrow) {
  if (wide == narrow) {
    return true;
  }
  if (const auto* suffix = std::get_if<NameSuffix>(&wide)) {
    if (const auto* other = std::get_if<NameSuffix>(&narrow)) {
      return is_below(other->suffix, suffix->suffix);
    }
    const auto* name = std::get_if<Host>(&narrow);
    return name != nullptr && is_below(name->text(), suffix->suffix);
  }
  const auto* prefix = std::get_if<Prefix>(&wide);
  const auto* other = std::get_if<Prefix>(&narrow);
  return prefix != nullptr && other != nullptr && prefix->contains(*other);
}

bool ports_cover(const std::vector<PortRange>& wide, const std::vector<PortRange>& narrow) {
  return std::all_of(narrow.begin(), narrow.end(), [&](const PortRange& range) {
    return std::any_of(wide.begin(), wide.end(), [&](const PortRange& holder) {
      return holder.first <= range.first && range.last <= holder.last;
    });
  });
}

// A pattern covers itself and, if its only '*' is at its end, whatever begins as it does.
bool path_covers(const std::string& wide, const std::string& narrow) {
  if (wide.empty() || wide == narrow) {
    return true;
  }
  return wide.find('*') == wide.size() - 1 &&
         narrow.starts_with(std::string_view(wide).substr(0, wide.size() - 1));
}

bool methods_cover(const std::vector<std::string>& wide, const std::vector<std::string>& narrow) {
  if (wide.empty()) {
    return true;
  }
  return !narrow.empty() &&
         std::all_of(narrow.begin(), narrow.end(), [&](const std::string& method) {
           return std::find(wide.begin(), wide.end(), method) != wide.end();
         });
}

bool covers(const NetworkRule& wide, const NetworkRule& narrow) {
  return (wide.kind == Kind::kTcp || wide.kind == narrow.kind) &&
         target_covers(wide.target, narrow.target) && ports_cover(wide.ports, narrow.ports) &&
         methods_cover(wide.methods, narrow.methods) && path_covers(wide.path, narrow.path);
}

// One address by itself can be a metadata service, loopback or the host's own, which a prefix that
// holds it does not list.
bool lists_more(const NetworkRule& wide, const NetworkRule& narrow) {
  const auto* holder = std::get_if<Prefix>(&wide.target);
  const auto* prefix = std::get_if<Prefix>(&narrow.target);
  return holder != nullptr && prefix != nullptr && prefix->is_one_address() &&
         !holder->is_one_address();
}

bool allowed_by(const NetworkPolicy& given, const NetworkRule& rule) {
  const bool listed =
      std::any_of(given.rules.begin(), given.rules.end(), [&](const NetworkRule& candidate) {
        return candidate.action == Action::kAllow && covers(candidate, rule) &&
               !lists_more(candidate, rule);
      });
  // Names lead to public addresses; an address that is listed can be any.
  return listed ||
         (given.mode == NetworkMode::kFull && !std::holds_alternative<Prefix>(rule.target));
}

bool denied_by(const NetworkPolicy& wanted, const NetworkRule& rule) {
  return std::any_of(wanted.rules.begin(), wanted.rules.end(), [&](const NetworkRule& candidate) {
    return candidate.action == Action::kDeny && covers(candidate, rule);
  });
}

}  // namespace

bool network_narrows(const NetworkPolicy& given, const NetworkPolicy& wanted) {
  const NetworkBudgets& most = given.budgets;
  const NetworkBudgets& budgets = wanted.budgets;
  if (budgets.bytes_out > most.bytes_out || budgets.bytes_in > most.bytes_in ||
      budgets.connections > most.connections ||
      budgets.lookups_per_minute > most.lookups_per_minute) {
    return false;
  }
  // CRITICAL: a project's own file does not help itself to the user's secrets.
  if (std::any_of(
          wanted.credentials.begin(), wanted.credentials.end(), [&](const Credential& credential) {
            return std::find(given.credentials.begin(), given.credentials.end(), credential) ==
                   given.credentials.end();
          })) {
    return false;
  }
  if (wanted.mode == NetworkMode::kNone) {
    return true;
  }
  if (given.mode == NetworkMode::kNone ||
      (wanted.mode == NetworkMode::kFull && given.mode != NetworkMode::kFull)) {
    // A list with nothing in it allows nothing.
    return wanted.mode == NetworkMode::kRules && wanted.rules.empty();
  }
  return std::all_of(wanted.rules.begin(), wanted.rules.end(),
                     [&](const NetworkRule& rule) {
                       return rule.action == Action::kDeny || allowed_by(given, rule);
                     }) &&
         std::all_of(given.rules.begin(), given.rules.end(), [&](const NetworkRule& rule) {
           return rule.action == Action::kAllow || denied_by(wanted, rule);
         });
}

}  // namespace carrel::policy
