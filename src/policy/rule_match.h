#pragma once

#include <string_view>

#include "policy/decide.h"
#include "policy/network.h"

// How one rule looks at a flow; the decision about all of them is in decide.h.
namespace carrel::policy {

bool has_port(const NetworkRule& rule, std::uint16_t port);
// Whether the name is below the suffix, and not the suffix itself.
bool is_below(std::string_view name, std::string_view suffix);

// Whether the rule means this host. An address is meant by a denial even if it only wraps one that
// is; an allowance has to list it: metadata services and loopback by themselves, others by
// themselves or by a prefix, 0.0.0.0/8 and :: in no way.
bool means(const NetworkRule& rule, const Host& host);
bool lists(const NetworkRule& rule, const IpAddress& address);

// What the rule says about a flow to a host and port that it means.
struct RuleAnswer {
  enum class Kind { kApplies, kDoesNotApply, kNeedsEvidence, kNeedsRequests };
  Kind kind = Kind::kDoesNotApply;
  std::string reason;  // why it does not apply
  std::string hint;
};
RuleAnswer allowance_applies(const NetworkRule& rule, const Flow& flow);
RuleAnswer denial_applies(const NetworkRule& rule, const Flow& flow);

// Whether what is known of the flow is of the kind that the rule has, whatever names are in it.
bool kind_fits(const NetworkRule& rule, const Evidence& evidence);

}  // namespace carrel::policy
