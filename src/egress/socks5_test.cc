#include "egress/socks5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace carrel::egress {
namespace {

using Message = std::vector<std::uint8_t>;

Message named(std::string_view name, std::uint16_t port) {
  Message bytes = {5, 1, 0, 3, static_cast<std::uint8_t>(name.size())};
  for (const char letter : name) {
    bytes.push_back(static_cast<std::uint8_t>(letter));
  }
  bytes.push_back(static_cast<std::uint8_t>(port >> 8U));
  bytes.push_back(static_cast<std::uint8_t>(port));
  return bytes;
}

TEST(Socks5, AGreetingOffersWaysToLogIn) {
  EXPECT_TRUE(parse_socks5_greeting(Message{5, 1, 0}).value.no_password);
  EXPECT_TRUE(parse_socks5_greeting(Message{5, 2, 2, 0}).value.no_password);
  const auto password = parse_socks5_greeting(Message{5, 1, 2, 9});
  ASSERT_TRUE(password.parsed());
  EXPECT_EQ(password.used, 3U);
  EXPECT_FALSE(password.value.no_password);
  EXPECT_THAT(socks5_method(password.value), testing::ElementsAre(5, 0xff));
  EXPECT_THAT(socks5_method({true}), testing::ElementsAre(5, 0));
  EXPECT_TRUE(parse_socks5_greeting(Message{}).needs_more());
  EXPECT_TRUE(parse_socks5_greeting(Message{5, 2, 0}).needs_more());
  EXPECT_TRUE(parse_socks5_greeting(Message{5, 0}).is_refused());
  EXPECT_TRUE(parse_socks5_greeting(Message{4, 1, 0, 80}).is_refused());
}

TEST(Socks5, ARequestIsForANameOrAnAddress) {
  const auto name = parse_socks5_request(named("Example.ORG", 443));
  ASSERT_TRUE(name.parsed());
  EXPECT_EQ(name.value.host.text(), "example.org");
  EXPECT_EQ(name.value.port, 443);
  EXPECT_EQ(name.used, named("Example.ORG", 443).size());
  const auto v4 = parse_socks5_request(Message{5, 1, 0, 1, 10, 0, 0, 5, 0, 80, 9});
  EXPECT_EQ(v4.value.host.text(), "10.0.0.5");
  EXPECT_EQ(v4.used, 10U);
  Message v6 = {5, 1, 0, 4};
  v6.resize(4 + 15, 0);
  v6.insert(v6.end(), {1, 0, 80});
  EXPECT_EQ(parse_socks5_request(v6).value.host.text(), "::1");
  EXPECT_EQ(parse_socks5_request(named("10.0.0.5", 80)).value.host.text(), "10.0.0.5");
}

TEST(Socks5, ARequestComesInAnyPieces) {
  for (const Message& whole : {named("example.org", 443), Message{5, 1, 0, 1, 1, 1, 1, 1, 0, 80}}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_TRUE(parse_socks5_request(Bytes(whole).first(size)).needs_more()) << size;
    }
  }
}

TEST(Socks5, WhatIsNotServedIsRefusedWithItsReply) {
  const std::string long_name(255, 'a');
  for (const auto& [bytes, reply] : {
           std::pair<Message, Socks5Reply>{{4, 1, 0, 80}, Socks5Reply::kFailure},
           {{5, 2}, Socks5Reply::kUnknownCommand},
           {{5, 3}, Socks5Reply::kUnknownCommand},
           {{5, 1, 1}, Socks5Reply::kFailure},
           {{5, 1, 0, 2, 0}, Socks5Reply::kUnknownAddressType},
           {{5, 1, 0, 1, 1, 1, 1, 1, 0, 0}, Socks5Reply::kNotAllowed},
           {named(std::string_view("evil.test\0.allowed.test", 23), 443), Socks5Reply::kNotAllowed},
           {named("a/b", 443), Socks5Reply::kNotAllowed},
           {named("a b", 443), Socks5Reply::kNotAllowed},
           {named("u@a.org", 443), Socks5Reply::kNotAllowed},
           {named("127.1", 443), Socks5Reply::kNotAllowed},
           {named("", 443), Socks5Reply::kNotAllowed},
           {named(long_name, 443), Socks5Reply::kNotAllowed},
       }) {
    const auto result = parse_socks5_request(bytes);
    ASSERT_TRUE(result.is_refused());
    EXPECT_EQ(result.value.refusal, reply) << result.reason;
  }
}

TEST(Socks5, AReplyHasNoAddress) {
  EXPECT_THAT(socks5_reply(Socks5Reply::kNotAllowed),
              testing::ElementsAre(5, 2, 0, 1, 0, 0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace carrel::egress
