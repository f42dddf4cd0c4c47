#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "policy/address_class.h"
#include "policy/given.h"
#include "policy/host.h"

namespace carrel::policy {

// What may leave a sandbox. The grammar is in SPECIFICATION.md, its reasons are in
// docs/decisions/0020-network-policy.md.

inline constexpr std::size_t kMostNetworkRules = 512;
inline constexpr std::uint32_t kMostNetworkConnections = 65'535;
inline constexpr std::uint32_t kMostNetworkLookups = 1'000'000;
inline constexpr std::uint8_t kWidestPrefixV4 = 8;
inline constexpr std::uint8_t kWidestPrefixV6 = 16;

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  bool operator==(const PortRange&) const = default;
};
inline constexpr PortRange kEveryPort{1, 65535};

// `*.suffix`: every name below it, at any depth, and not the suffix itself.
struct NameSuffix {
  std::string suffix;  // canonical, two labels or more
  bool operator==(const NameSuffix&) const = default;
};
// A name, the names below a suffix, or addresses.
using RuleTarget = std::variant<Host, NameSuffix, Prefix>;  // the Host is always a name

struct NetworkRule {
  enum class Action { kAllow, kDeny };
  enum class Kind {
    kHttps,  // TLS for that name; with methods or a path, requests that are read
    kHttp,   // HTTP without TLS
    kTcp,    // any bytes; the kind of a denial that says no other
  };
  Action action = Action::kAllow;
  Kind kind = Kind::kHttps;
  RuleTarget target;
  std::vector<PortRange> ports;      // in order, apart from each other, never empty
  std::vector<std::string> methods;  // empty: any
  std::string path;                  // '*' stands for any text; empty: any

  [[nodiscard]] bool reads_requests() const { return !methods.empty() || !path.empty(); }
  bool operator==(const NetworkRule&) const = default;
};

enum class NetworkMode {
  kNone,
  kRules,  // what a rule allows; without rules, nothing
  kFull,   // every public address; rules can deny, and allow addresses that are not public
};

// Zero is never "unlimited".
struct NetworkBudgets {
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes_out = kUnlimited;
  std::uint64_t bytes_in = kUnlimited;
  std::uint32_t connections = 256;  // at the same time
  std::uint32_t lookups_per_minute = 600;
  bool operator==(const NetworkBudgets&) const = default;
};

// A header that the egress process adds to requests, and to which: see policy/credential.h.
struct Credential {
  NetworkRule rule;    // an allowance by https, of one name and port
  std::string header;  // in lower case
  std::string value;   // with {{ secret.NAME }} in it
  bool operator==(const Credential&) const = default;
};

struct NetworkPolicy {
  NetworkMode mode = NetworkMode::kNone;
  std::vector<NetworkRule> rules;  // no two are the same; empty for kNone
  NetworkBudgets budgets;
  std::vector<Credential> credentials;

  // Whether some TLS has to be ended by us, so that the sandbox has to trust us.
  [[nodiscard]] bool ends_tls() const;
  bool operator==(const NetworkPolicy&) const = default;
};

// One rule as people write it: `pypi.org`, `*.github.com:443`, `tcp:db.example.org:5432`,
// `http:GET+HEAD:example.org/api/*`, `deny:bad.github.com`, `10.0.0.0/8:443`.
Result<NetworkRule> parse_rule(const Given& given);
// The one spelling of a rule, which reads back as the same rule.
std::string rule_text(const NetworkRule& rule);

// The same, or the rules of a preset by its name: pypi, npm, debian, github, crates, go.
Result<std::vector<NetworkRule>> parse_rule_or_preset(const Given& given);
std::vector<std::string_view> preset_names();

// `none`, `full`, `full,RULE,...`, `allow=RULE,...` (nothing after it: nothing is allowed), or
// `deny=TARGET,...`, which is full with denials. Budgets are the defaults.
Result<NetworkPolicy> parse_network(const Given& given);
// Reads back as the same policy, but for the budgets and the credentials.
std::string network_text(const NetworkPolicy& policy);

// As one JSON object: {"mode", "rules", "budgets", "credentials"}.
std::string network_to_json(const NetworkPolicy& policy);
Result<NetworkPolicy> network_from_json(std::string_view text);

}  // namespace carrel::policy
