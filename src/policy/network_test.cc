#include "policy/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "policy/spec_json.h"

namespace carrel::policy {
namespace {

using testing::HasSubstr;

std::string canonical_name(std::string_view text) {
  const auto policy = parse_network({"--network", text});
  return policy.ok() ? network_text(policy.value()) : "refused: " + policy.error().to_string();
}

TEST(NetworkPolicy, HasOneSpellingThatReadsBack) {
  for (const auto& [text, expected] : {
           std::pair{"none", "none"},
           {"full", "full"},
           {"allow=", "allow="},
           {"allow=A.org,b.org:80+443", "allow=a.org,b.org:80+443"},
           {"allow=a.org,a.org:443", "allow=a.org"},
           {"allow=*.a.org,deny:b.a.org", "allow=*.a.org,deny:b.a.org"},
           {"deny=a.org,deny:b.org", "full,deny:a.org,deny:b.org"},
           {"full,deny:a.org", "full,deny:a.org"},
           {"full,10.0.0.5:8080", "full,10.0.0.5:8080"},
           {"allow=npm", "allow=registry.npmjs.org"},
       }) {
    EXPECT_EQ(canonical_name(text), expected);
    EXPECT_EQ(canonical_name(expected), expected);
  }
}

TEST(NetworkPolicy, WhatIsNoneIsRefusedWithAHint) {
  for (const auto& [text, part] : {
           std::pair{"", "unknown network policy"},
           {"nome", "did you mean 'none'?"},
           {"allwo=a.org", "did you mean 'allow'?"},
           {"allow", "allow=HOST"},
           {"deny", "deny=HOST"},
           {"deny=", "empty"},
           {"full,", "empty"},
           {"allow=a.org,", "empty"},
           {"allow=,a.org", "empty"},
           {"allow=a.org,,b.org", "empty"},
           {"a.org", "did you mean 'allow=a.org'?"},
           {"pypi", "did you mean 'allow=pypi'?"},
           {"full,a.org", "already"},
           {"full,pypi", "already"},
           {"allow=pypy", "did you mean 'pypi'?"},
           {"allow=full", "neither a preset"},
           {"None", "did you mean 'none'?"},
       }) {
    const auto policy = parse_network({"--network", text});
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_THAT(policy.error().to_string(), HasSubstr(part)) << text;
  }
  std::string many = "allow=";
  for (std::size_t i = 0; i <= kMostNetworkRules; ++i) {
    many += "h" + std::to_string(i) + ".example.org,";
  }
  many.pop_back();
  EXPECT_FALSE(parse_network({"x", many}).ok());
}

TEST(NetworkPolicy, EveryPresetIsRulesThatRead) {
  for (const std::string_view name : preset_names()) {
    const auto rules = parse_rule_or_preset({"x", name});
    ASSERT_TRUE(rules.ok()) << name;
    for (const NetworkRule& rule : rules.value()) {
      EXPECT_EQ(rule.action, NetworkRule::Action::kAllow);
      EXPECT_FALSE(std::holds_alternative<Prefix>(rule.target));
    }
  }
  EXPECT_THAT(preset_names(),
              testing::ElementsAre("pypi", "npm", "debian", "github", "crates", "go"));
}

TEST(NetworkPolicy, SurvivesJson) {
  for (const std::string_view text :
       {"none", "full", "allow=", "full,deny:a.org,tcp:10.0.0.5:5432",
        "allow=pypi,tcp:[fd00::1]:22,http:GET+HEAD:example.com/api/*,deny:*.bad.org"}) {
    NetworkPolicy policy = parse_network({"x", text}).value();
    policy.budgets.bytes_out = 1000;
    policy.budgets.connections = 7;
    const auto back = network_from_json(network_to_json(policy));
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_EQ(back.value(), policy) << text;
    Spec spec;
    spec.network = policy;
    EXPECT_EQ(spec_from_json(spec_to_json(spec, Values::kIncluded)).value().network, policy);
  }
}

TEST(NetworkPolicy, DamagedJsonIsNoPolicy) {
  const std::string budgets =
      R"("budgets":{"bytes_out":1,"bytes_in":"unlimited","connections":1,"lookups_per_minute":1}})";
  EXPECT_TRUE(network_from_json(R"({"mode":"rules","rules":["a.org"],)" + budgets).ok());
  for (const std::string& text : {
           std::string("{}"),
           std::string("[]"),
           std::string("x"),
           R"({"mode":"open","rules":[],)" + budgets,
           R"({"mode":"none","rules":["a.org"],)" + budgets,
           R"({"mode":"rules","rules":["a.org,b.org"],)" + budgets,
           R"({"mode":"rules","rules":[""],)" + budgets,
           R"({"mode":"rules","rules":["*"],)" + budgets,
           R"({"mode":"rules","rules":[1],)" + budgets,
           std::string(R"({"mode":"full","rules":[]})"),
           std::string(R"({"mode":"full","rules":[],"budgets":{"bytes_out":-1,"bytes_in":1,)"
                       R"("connections":1,"lookups_per_minute":1}})"),
           std::string(R"({"mode":"full","rules":[],"budgets":{"bytes_out":1,"bytes_in":1,)"
                       R"("connections":0,"lookups_per_minute":1}})"),
           std::string(R"({"mode":"full","rules":[],"budgets":{"bytes_out":1,"bytes_in":1,)"
                       R"("connections":4294967297,"lookups_per_minute":1}})"),
       }) {
    EXPECT_FALSE(network_from_json(text).ok()) << text;
  }
}

// Words that a rule can be made of, put together at random: whatever reads has one spelling.
TEST(NetworkPolicy, WhateverReadsReadsBackTheSame) {
  constexpr std::array<std::string_view, 40> kParts = {
      "allow=", "deny=",    "full",     "none",     ",",        ":",       "deny:",  "https:",
      "http:",  "tcp:",     "GET",      "+",        "HEAD",     "POST",    "*.",     "*",
      "a.org",  "b.a.org.", "A.ORG",    "x",        "80",       "443",     "-",      "/8",
      "/",      "/a/*",     "10.0.0.5", "10.0.0.0", "[fd00::]", "fd00::1", "pypi",   "/16",
      ".",      "%20",      "ü.org",    "1",        "65535",    "[::1]",   "_s.org", "go"};
  std::mt19937 random(7);
  std::uniform_int_distribution<std::size_t> part(0, kParts.size() - 1);
  std::uniform_int_distribution<int> length(1, 7);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = i % 2 == 0 ? "allow=" : "";
    for (int left = length(random); left > 0; --left) {
      text += kParts.at(part(random));
    }
    const auto policy = parse_network({"x", text});
    if (!policy.ok()) {
      ASSERT_LT(policy.error().to_string().size(), 400U) << text;
      continue;
    }
    ++read;
    const std::string again = network_text(policy.value());
    const auto back = parse_network({"x", again});
    ASSERT_TRUE(back.ok()) << text << " -> " << again << ": " << back.error().to_string();
    ASSERT_EQ(back.value(), policy.value()) << text << " -> " << again;
    ASSERT_EQ(network_text(back.value()), again);
  }
  EXPECT_GT(read, 200);
}

}  // namespace
}  // namespace carrel::policy
