#include "agent/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/settings.h"

namespace carrel::agent {
namespace {

using testing::HasSubstr;

constexpr char kWhole[] = R"(
name = "coder"
system_prompt = "Write code."
tools = ["exec", "files", "skill", "services"]
sandboxed = "code"
skills = "skills"
allowed_services = ["lookup"]

[model]
provider = "anthropic"
name = "some-model"
base_url = "https://example.org"
key = "secret:anthropic"
max_tokens = 1000
temperature = 0.5
retries = 2
retry_delay = 0.25
input_price = 3.0
output_price = 15

[limits]
steps = 7
tokens = 1000
time = "2m"

[sandbox]
memory = "1g"
network = ["pypi", "example.org"]
env = {A = "1"}

[services.lookup]
description = "looks a word up"
command = ["lookup", "--json"]
timeout = 5
[services.lookup.arguments]
type = "object"
required = ["word"]
[services.lookup.arguments.properties.word]
type = "string"

[mcp.local]
command = "server"
)";

TEST(ProfileTest, RoundTripsThroughJson) {
  auto profile = parse_profile(kWhole, "p.toml");
  ASSERT_TRUE(profile.ok()) << profile.error().to_string();
  EXPECT_EQ(profile->limits.time, std::chrono::minutes(2));
  EXPECT_EQ(profile->sandboxed, Sandboxed::kCode);
  auto again = parse_profile(profile_to_json(profile.value()), "p.json");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(again.value(), profile.value());
  EXPECT_EQ(parse_profile(profile_to_json(Profile{}), "d.json").value(), Profile{});
}

TEST(ProfileTest, SettingsOfTheSandboxAreThoseOfCreate) {
  const Profile profile = parse_profile(kWhole, "p.toml").value();
  policy::Spec spec = policy::default_spec(policy::Operation::kCreate);
  ASSERT_TRUE(apply_sandbox_settings(profile, spec).ok());
  EXPECT_EQ(spec.limits.memory_bytes, 1ULL << 30);
  EXPECT_EQ(spec.network.mode, policy::NetworkMode::kRules);
  EXPECT_GE(spec.network.rules.size(), 2U);
  ASSERT_EQ(spec.environment.size(), 1U);
  EXPECT_EQ(spec.environment[0].name, "A");
}

TEST(ProfileTest, WhatItDoesNotKnowIsAnErrorWithAHint) {
  const auto error_of = [](const std::string& text) {
    auto profile = parse_profile(text, "p.toml");
    return profile.ok() ? "" : profile.error().to_string();
  };
  EXPECT_THAT(error_of("tolos = []"), HasSubstr("tolos"));
  EXPECT_THAT(error_of("[sandbox]\nmemroy = \"1g\""), HasSubstr("did you mean 'memory'?"));
  EXPECT_THAT(error_of("[sandbox]\nmemory = \"lots\""), HasSubstr("memory"));
  EXPECT_THAT(error_of("sandboxed = \"some\""), HasSubstr("all, code, files or none"));
  EXPECT_THAT(error_of("allowed_services = [\"x\"]"), HasSubstr("there is no service 'x'"));
  EXPECT_THAT(error_of("[limits]\nsteps = 0"), HasSubstr("zero is never"));
  EXPECT_THAT(error_of("[services.x]\ndescription = \"d\"\ncommand = [\"c\"]\n"
                       "[services.x.arguments]\ntype = \"string\""),
              HasSubstr("[services.x]"));
}

TEST(ProfileTest, AKeyInAProfileIsRefusedAndNotRepeated) {
  auto profile = parse_profile("[model]\nkey = \"sk-real-key\"\n", "p.toml");
  ASSERT_FALSE(profile.ok());
  EXPECT_THAT(profile.error().to_string(), testing::Not(HasSubstr("sk-real")));
}

TEST(ProfileTest, NoToolsAreNoTools) {
  EXPECT_TRUE(parse_profile("tools = []", "p.toml")->tools.empty());
}

}  // namespace
}  // namespace carrel::agent
