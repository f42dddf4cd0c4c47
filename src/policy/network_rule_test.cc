#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "policy/network.h"

namespace carrel::policy {
namespace {

using testing::HasSubstr;

std::string canonical(std::string_view text) {
  const auto rule = parse_rule({"--network", text});
  return rule.ok() ? rule_text(rule.value()) : "refused: " + rule.error().to_string();
}

TEST(NetworkRule, HasOneSpellingThatReadsBack) {
  for (const auto& [text, expected] : {
           std::pair{"pypi.org", "pypi.org"},
           {"PyPI.org.", "pypi.org"},
           {"https:pypi.org", "pypi.org"},
           {"https:pypi.org:443", "pypi.org"},
           {"*.github.com:443", "*.github.com"},
           {"*.github.com:8443", "*.github.com:8443"},
           {"tcp:db.internal:5432", "tcp:db.internal:5432"},
           {"tcp:db:5432", "tcp:db:5432"},
           {"https:db", "https:db"},
           {"http:GET+HEAD:example.com/api/*", "http:GET+HEAD:example.com/api/*"},
           {"http:HEAD+GET+GET:example.com", "http:GET+HEAD:example.com"},
           {"http:example.com:80", "http:example.com"},
           {"http:example.com/*", "http:example.com"},
           {"https:POST:example.com:8443/a", "https:POST:example.com:8443/a"},
           {"github.com/org/*", "github.com/org/*"},
           {"10.0.0.5:8080", "10.0.0.5:8080"},
           {"10.0.0.0/8", "10.0.0.0/8"},
           {"10.0.0.0/8:80+443", "10.0.0.0/8:80+443"},
           {"tcp:10.0.0.5/32:1-65535", "tcp:10.0.0.5:*"},
           {"http:10.0.0.5/api/*", "http:10.0.0.5/api/*"},
           {"fd00::1", "[fd00::1]"},
           {"fd00::/16", "[fd00::]/16"},
           {"[fd00::]/16:8080", "[fd00::]/16:8080"},
           {"tcp:[FD00::1]:22", "tcp:[fd00::1]:22"},
           {"[::ffff:10.0.0.1]", "10.0.0.1"},
           {"deny:bad.github.com", "deny:bad.github.com"},
           {"deny:tcp:bad.github.com:*", "deny:bad.github.com"},
           {"deny:bad.github.com:22", "deny:bad.github.com:22"},
           {"deny:tcp:localhost", "deny:tcp:localhost"},
           {"deny:https:POST:github.com/org/*", "deny:https:POST:github.com/org/*"},
           {"deny:0.0.0.0/0", "deny:0.0.0.0/0"},
           {"a.org:80+443+81", "a.org:80-81+443"},
           {"a.org:1-10+5-20", "a.org:1-20"},
           {"bücher.example", "xn--bcher-kva.example"},
       }) {
    EXPECT_EQ(canonical(text), expected) << text;
    EXPECT_EQ(canonical(expected), expected) << text;
    EXPECT_EQ(parse_rule({"x", text}).value(), parse_rule({"x", expected}).value()) << text;
  }
}

TEST(NetworkRule, ADenialIsOfEveryPortAndEverything) {
  const NetworkRule rule = parse_rule({"x", "deny:a.org"}).value();
  EXPECT_EQ(rule.kind, NetworkRule::Kind::kTcp);
  EXPECT_EQ(rule.ports, std::vector<PortRange>{kEveryPort});
}

TEST(NetworkRule, WhatIsNoneIsRefusedWithAHint) {
  for (const auto& [text, part] : {
           std::pair{"", "empty"},
           {"*", "'full'"},
           {"*.com", "top-level"},
           {"*.", "empty"},
           {"a*.org", "only in front"},
           {"*.a.*.org", "only in front"},
           {"*.1.2.3.4", "address"},
           {"pypy", "did you mean 'pypi'?"},
           {"somehost", "pypi, npm, debian"},
           {"deny:github", "neither a preset"},
           {"htps:a.org", "did you mean 'https'?"},
           {"https://a.org/x", "not a URL"},
           {"a.org:", "not a port"},
           {"a.org:0", "not a port"},
           {"a.org:65536", "not a port"},
           {"a.org:080", "not a port"},
           {"a.org:90-80", "not a port"},
           {"a.org:80+", "not a port"},
           {"a.org:-80", "not a port"},
           {"a.org:80:81", "not a port"},
           {"tcp:a.org", "no port"},
           {"tcp:a.org:22/path", "path"},
           {"deny:a.org/path", "path"},
           {"http:GTE:a.org", "did you mean 'GET'?"},
           {"http:CONNECT:a.org", "not a method"},
           {"http:GET,HEAD:a.org", "'+'"},
           {"a.org/../b", "different ways"},
           {"a.org/a;b", "different ways"},
           {"a.org/%2e", "different ways"},
           {"0.0.0.0/0", "'full'"},
           {"8.0.0.0/7", "'full'"},
           {"[::]/0", "'full'"},
           {"10.0.0.1/8", "did you mean '10.0.0.0/8'?"},
           {"10.0.0.0/33", "bits"},
           {"127.1", "ends in a number"},
           {"2130706433", "ends in a number"},
           {"0x7f.0.0.1", "ends in a number"},
           {"[fe80::1%eth0]", "not an IPv4 or IPv6"},
           {"[fd00::1", "missing"},
           {"[10.0.0.1]", "brackets"},
           {"a b.org", "characters"},
           {"user@a.org", "characters"},
           {" a.org", "characters"},
       }) {
    const auto rule = parse_rule({"--network", text});
    ASSERT_FALSE(rule.ok()) << text;
    EXPECT_EQ(rule.error().code, Code::kInvalid) << text;
    EXPECT_THAT(rule.error().to_string(), HasSubstr(part)) << text;
  }
}

}  // namespace
}  // namespace carrel::policy
