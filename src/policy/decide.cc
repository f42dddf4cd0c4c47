#include "policy/decide.h"

#include <algorithm>

#include "policy/credential.h"
#include "policy/rule_match.h"

namespace carrel::policy {
namespace {

using Action = NetworkRule::Action;
using Answer = RuleAnswer::Kind;
using Outcome = Verdict::Outcome;

Verdict denied(std::string reason, std::string hint = {}, std::string rule = {}) {
  return {Outcome::kDenied, std::move(rule), std::move(reason), std::move(hint)};
}

Verdict no_network() { return denied("the sandbox has no network", "give it one with --network"); }

Verdict answered(const NetworkRule& rule, Answer answer) {
  switch (answer) {
    case Answer::kApplies:
      break;
    case Answer::kNeedsRequests:
      return {Outcome::kNeedsRequests, rule_text(rule), "a rule decides about each request", {}};
    case Answer::kNeedsEvidence:
      return {Outcome::kNeedsEvidence, rule_text(rule), "the first bytes decide", {}};
    case Answer::kDoesNotApply:
      return denied("the rule does not apply", {}, rule_text(rule));
  }
  return {Outcome::kAllowed, rule_text(rule), "a rule allows it", {}};
}

// The names that a flow has: where it goes, and where its bytes say that it goes.
std::vector<Host> hosts_of(const Flow& flow) {
  std::vector<Host> hosts = {flow.host};
  if (const auto* hello = std::get_if<TlsHello>(&flow.evidence);
      hello != nullptr && hello->name.has_value()) {
    hosts.push_back(*hello->name);
  } else if (const auto* request = std::get_if<HttpRequest>(&flow.evidence)) {
    hosts.push_back(request->host);
  }
  return hosts;
}

// What the denials say: one that denies; else, one that has to see more; else nothing.
std::optional<Verdict> denials(const NetworkPolicy& policy, const Flow& flow,
                               const std::vector<Host>& hosts) {
  std::optional<Verdict> pending;
  for (const NetworkRule& rule : policy.rules) {
    const bool meant = rule.action == Action::kDeny && has_port(rule, flow.port) &&
                       std::any_of(hosts.begin(), hosts.end(),
                                   [&](const Host& host) { return means(rule, host); });
    if (!meant) {
      continue;
    }
    const RuleAnswer answer = denial_applies(rule, flow);
    if (answer.kind == Answer::kApplies) {
      return denied("a rule denies it", {}, rule_text(rule));
    }
    if (answer.kind != Answer::kDoesNotApply && !pending.has_value()) {
      pending = answered(rule, answer.kind);
    }
  }
  return pending;
}

// With everything public allowed, a denied name can hide behind another one until the bytes show.
bool hides_until_seen(const NetworkPolicy& policy, const Flow& flow) {
  return std::holds_alternative<std::monostate>(flow.evidence) &&
         std::any_of(policy.rules.begin(), policy.rules.end(), [&](const NetworkRule& rule) {
           return rule.action == Action::kDeny && has_port(rule, flow.port) &&
                  !std::holds_alternative<Prefix>(rule.target);
         });
}

// The rule that would allow this flow, as a hint.
std::string suggestion(const Flow& flow) {
  const bool dotted = flow.host.text().find('.') != std::string::npos;
  const std::string endpoint = endpoint_text(flow.host, flow.port);
  if (flow.port == 443 && flow.host.is_name() && dotted) {
    return concat({"'", flow.host.text(), "' would allow it"});
  }
  if (flow.port == 80 && flow.host.is_name()) {
    return concat({"'http:", flow.host.text(), "' would allow it"});
  }
  return concat({"'tcp:", endpoint, "' would allow it"});
}

Verdict no_rule(const NetworkPolicy& policy, const Flow& flow) {
  const std::string endpoint = endpoint_text(flow.host, flow.port);
  for (const NetworkRule& rule : policy.rules) {
    if (rule.action == Action::kAllow && means(rule, flow.host)) {
      return denied(concat({"no rule allows this port: ", endpoint}),
                    concat({"'", rule_text(rule), "' is for other ports"}));
    }
  }
  if (const IpAddress* address = flow.host.address(); address != nullptr) {
    const AddressClass kind = classify(*address);
    return denied(concat({endpoint, " is ", describe(kind), ", and no rule lists it"}),
                  kind == AddressClass::kPublic ? "use a name that is allowed, or list the address"
                                                : suggestion(flow));
  }
  return denied(concat({"no rule allows ", endpoint}), suggestion(flow));
}

Verdict allowances(const NetworkPolicy& policy, const Flow& flow) {
  std::optional<Verdict> pending;
  std::optional<Verdict> refused;
  for (const NetworkRule& rule : policy.rules) {
    if (rule.action != Action::kAllow || !has_port(rule, flow.port) || !means(rule, flow.host)) {
      continue;
    }
    RuleAnswer answer = allowance_applies(rule, flow);
    if (answer.kind == Answer::kApplies) {
      return answered(rule, answer.kind);
    }
    if (answer.kind == Answer::kDoesNotApply) {
      if (!refused.has_value()) {
        refused = denied(std::move(answer.reason), std::move(answer.hint), rule_text(rule));
      }
    } else if (!pending.has_value()) {
      pending = answered(rule, answer.kind);
    }
  }
  if (pending.has_value()) {
    return std::move(*pending);
  }
  return refused.has_value() ? std::move(*refused) : no_rule(policy, flow);
}

Verdict full(const NetworkPolicy& policy, const Flow& flow) {
  const IpAddress* address = flow.host.address();
  if (address != nullptr && classify(*address) != AddressClass::kPublic) {
    return allowances(policy, flow);
  }
  if (hides_until_seen(policy, flow)) {
    return {Outcome::kNeedsEvidence, {}, "the first bytes can show a name that is denied", {}};
  }
  return {Outcome::kAllowed, "full", "every public address is allowed", {}};
}

// A server that a credential is for is asked by us, if it is asked by the name that it is for.
Verdict with_credentials(const NetworkPolicy& policy, const Flow& flow, Verdict verdict) {
  const bool any = std::any_of(
      policy.credentials.begin(), policy.credentials.end(),
      [&](const Credential& credential) { return is_for(credential, flow.host, flow.port); });
  if (!verdict.allowed() || !any) {
    return verdict;
  }
  const auto* hello = std::get_if<TlsHello>(&flow.evidence);
  if (hello != nullptr && hello->name == flow.host) {
    return {Outcome::kNeedsRequests, verdict.rule, "requests get a credential", {}};
  }
  if (std::holds_alternative<std::monostate>(flow.evidence)) {
    return {Outcome::kNeedsEvidence, verdict.rule, "the first bytes decide", {}};
  }
  return verdict;
}

// The address or what it wraps.
bool is_own(const IpAddress& address, std::span<const IpAddress> own) {
  const std::optional<IpAddress> inner = embedded_v4(address);
  return std::any_of(own.begin(), own.end(), [&](const IpAddress& mine) {
    return mine == address || (inner.has_value() && mine == *inner);
  });
}

}  // namespace

Verdict decide(const NetworkPolicy& policy, const Flow& flow) {
  if (policy.mode == NetworkMode::kNone) {
    return no_network();
  }
  if (flow.port == 0) {
    return denied("no connection goes to port 0");
  }
  std::optional<Verdict> deny = denials(policy, flow, hosts_of(flow));
  if (deny.has_value() && deny->denied()) {
    return std::move(*deny);
  }
  Verdict verdict =
      policy.mode == NetworkMode::kFull ? full(policy, flow) : allowances(policy, flow);
  if (verdict.allowed() && deny.has_value()) {
    return std::move(*deny);
  }
  return with_credentials(policy, flow, std::move(verdict));
}

Verdict may_resolve(const NetworkPolicy& policy, const Host& name) {
  if (policy.mode == NetworkMode::kNone) {
    return no_network();
  }
  if (!name.is_name()) {
    return denied(concat({name.text(), " is an address, not a name"}));
  }
  const NetworkRule* allowing = nullptr;
  for (const NetworkRule& rule : policy.rules) {
    if (!means(rule, name)) {
      continue;
    }
    const bool everything =
        rule.kind == NetworkRule::Kind::kTcp && rule.ports == std::vector<PortRange>{kEveryPort};
    if (rule.action == Action::kDeny && everything) {
      return denied("a rule denies it", {}, rule_text(rule));
    }
    if (rule.action == Action::kAllow && allowing == nullptr) {
      allowing = &rule;
    }
  }
  if (policy.mode == NetworkMode::kFull) {
    return {Outcome::kAllowed, "full", "every public address is allowed", {}};
  }
  if (allowing == nullptr) {
    return denied(concat({"no rule allows ", name.text()}), suggestion({name, 443, {}}));
  }
  return answered(*allowing, Answer::kApplies);
}

Verdict may_dial(const NetworkPolicy& policy, const Flow& flow, const IpAddress& address,
                 std::span<const IpAddress> own) {
  if (policy.mode == NetworkMode::kNone) {
    return no_network();
  }
  const IpAddress* literal = flow.host.address();
  if (literal != nullptr && *literal != address) {
    return denied(concat({"the connection is to ", literal->text(), ", not to ", address.text()}));
  }
  // A denial that would have to see more than is known by now denies, unless it is going to see.
  const auto* hello = std::get_if<TlsHello>(&flow.evidence);
  const bool asked_again = hello != nullptr && hello->end == TlsHello::End::kHere;
  if (const auto deny = denials(policy, flow, {Host(address)});
      deny.has_value() && (deny->denied() || !asked_again)) {
    return denied(concat({"a rule denies the address ", address.text()}), {}, deny->rule);
  }
  const bool mine = is_own(address, own);
  for (const NetworkRule& rule : policy.rules) {
    if (rule.action == Action::kAllow && has_port(rule, flow.port) && lists(rule, address) &&
        kind_fits(rule, flow.evidence) &&
        (!mine || std::get<Prefix>(rule.target).is_one_address())) {
      return answered(rule, Answer::kApplies);
    }
  }
  const AddressClass kind = classify(address);
  if (kind == AddressClass::kPublic && !mine) {
    return {Outcome::kAllowed, {}, "the address is public", {}};
  }
  const std::string_view what = mine ? "an address of this host" : describe(kind);
  const std::string hint = kind == AddressClass::kThisNetwork
                               ? std::string()
                               : suggestion({Host(address), flow.port, {}});
  if (literal != nullptr) {
    return denied(concat({address.text(), " is ", what}), hint);
  }
  return denied(concat({flow.host.text(), " leads to ", address.text(), ", ", what}), hint);
}

}  // namespace carrel::policy
