#include "server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/sha256.h"

namespace carrel::server {
namespace {

using testing::HasSubstr;
using testing::Not;

http::RequestHead head_of(const std::string& lines) {
  const std::string text = "GET / HTTP/1.1\r\n" + lines + "\r\n";
  auto parsed =
      http::parse_request_head({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(parsed.parsed()) << parsed.reason;
  return parsed.value;
}

http::Listener tcp() {
  http::Listener listener;
  listener.kind = http::Listener::Kind::kTcp;
  listener.name = "10.1.2.3:8080";
  listener.port = 8080;
  return listener;
}

TEST(Tokens, NewTokenIsKnownByItsLineAndNotInIt) {
  auto made = Access::make_token("ci", Scope::kWrite);
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(made->line, Not(HasSubstr(made->secret)));
  auto tokens = Access::parse_tokens("# who\n\n" + made->line, "tokens");
  ASSERT_TRUE(tokens.ok());
  ASSERT_EQ(tokens->size(), 1U);
  Access access;
  access.set_tokens(tokens.value());
  auto identity = access.identify(
      head_of("host: h\r\nauthorization: Bearer " + made->secret + "\r\n"), tcp(), -1);
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(identity->caller.owner, "ci");
  EXPECT_EQ(identity->scope, Scope::kWrite);
  for (const std::string& wrong :
       {"authorization: Bearer " + made->secret + "0", std::string("authorization: Bearer "),
        "authorization: bearer " + made->secret,
        "authorization: Bearer " + made->secret + "\r\nauthorization: Bearer " + made->secret}) {
    auto nobody = access.identify(head_of("host: h\r\n" + wrong + "\r\n"), tcp(), -1);
    ASSERT_TRUE(nobody.ok());
    EXPECT_EQ(nobody->scope, Scope::kOpen) << wrong;
  }
}

TEST(Tokens, LinesThatAreNoneAreErrorsWithTheirNumber) {
  const std::string digest = sha256("x");
  for (const std::string& line :
       {std::string("ci write"), "ci admin " + digest, "ci write " + digest.substr(1),
        "c/i write " + digest, "ci write " + digest + " more"}) {
    auto tokens = Access::parse_tokens("\n" + line + "\n", "tokens");
    ASSERT_FALSE(tokens.ok()) << line;
    EXPECT_THAT(tokens.error().message, HasSubstr("tokens:2"));
  }
  EXPECT_FALSE(Access::make_token("a b", Scope::kRead).ok());
}

// J07
TEST(Place, OnlyTheListenersOwnNamesAreServed) {
  Access access;
  access.add_host("carrel.example");
  const auto served = [&](const std::string& host) {
    return access.check_place(head_of("host: " + host + "\r\n"), tcp()).ok();
  };
  EXPECT_TRUE(served("10.1.2.3:8080"));
  EXPECT_TRUE(served("10.1.2.3"));
  EXPECT_TRUE(served("localhost:8080"));
  EXPECT_TRUE(served("[::1]:8080"));
  EXPECT_TRUE(served("carrel.example"));
  EXPECT_FALSE(served("localhost:8081"));
  EXPECT_FALSE(served("10.1.2.4"));
  EXPECT_FALSE(served("evil.test"));
  EXPECT_FALSE(served("carrel.example.evil.test"));
}

// J09, J10
TEST(Place, WebPagesAreNot) {
  Access access;
  const auto served = [&](const std::string& header) {
    return access.check_place(head_of("host: localhost\r\n" + header + "\r\n"), tcp()).ok();
  };
  EXPECT_TRUE(served("x: y"));
  EXPECT_FALSE(served("origin: null"));
  EXPECT_FALSE(served("origin: http://localhost:8080"));
  EXPECT_FALSE(served("sec-fetch-site: cross-site"));
  EXPECT_FALSE(served("sec-fetch-site: same-site"));
}

// J06
TEST(Compare, TextsOfOtherLengthsAndContentsDiffer) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
}

}  // namespace
}  // namespace carrel::server
