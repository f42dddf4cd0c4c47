#include "storage/images/registry_auth.h"

#include <gtest/gtest.h>

namespace carrel::storage {
namespace {

TEST(RegistryAuthTest, ChallengesAreRead) {
  const auto bearer = parse_challenge(
      R"(Bearer realm="https://a/t?x=1,2",service="s \"q\"" , scope="repository:a/b:pull,push")");
  ASSERT_TRUE(bearer.has_value());
  EXPECT_EQ(bearer->scheme, Challenge::Scheme::kBearer);
  EXPECT_EQ(bearer->realm, "https://a/t?x=1,2");
  EXPECT_EQ(bearer->service, "s \"q\"");
  EXPECT_EQ(bearer->scope, "repository:a/b:pull,push");
  EXPECT_EQ(parse_challenge("basic realm=x")->scheme, Challenge::Scheme::kBasic);
  const auto second = parse_challenge(R"(Negotiate, Bearer realm="r", Basic realm="no")");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->realm, "r");
  for (const char* text :
       {"", "Negotiate", "realm=\"x\"", "Digest realm=\"x\"", ",,,", "\"", "="}) {
    EXPECT_FALSE(parse_challenge(text).has_value()) << text;
  }
}

TEST(RegistryAuthTest, CredentialsAreOfThatRegistryAlone) {
  const std::string config = R"({"auths": {
    "https://index.docker.io/v1/": {"auth": "aHVi"},
    "Registry.example:5000": {"auth": "bWluZQ=="},
    "helper.example": {},
    "evil.example": {"auth": "a\r\nX: y"}},
    "credHelpers": {"helper.example": "run-me"}, "credsStore": "desktop"})";
  EXPECT_EQ(credentials_in(config, "docker.io"), "Basic aHVi");
  EXPECT_EQ(credentials_in(config, "registry.example:5000"), "Basic bWluZQ==");
  for (const char* other : {"registry.example", "example", "helper.example", "evil.example", ""}) {
    EXPECT_EQ(credentials_in(config, other), "") << other;
  }
  EXPECT_EQ(credentials_in("not json", "docker.io"), "");
  EXPECT_EQ(credentials_in(R"({"auths": []})", "docker.io"), "");
}

TEST(RegistryAuthTest, TokensAreOneWord) {
  EXPECT_EQ(token_in(R"({"token": "abc"})"), "abc");
  EXPECT_EQ(token_in(R"({"access_token": "def"})"), "def");
  EXPECT_EQ(token_in(R"({"token": "a b"})"), "");
  EXPECT_EQ(token_in(R"({"token": "a\r\nX: y"})"), "");
  EXPECT_EQ(token_in(R"({"token": 3})"), "");
  EXPECT_EQ(token_in("<html>"), "");
}

}  // namespace
}  // namespace carrel::storage
