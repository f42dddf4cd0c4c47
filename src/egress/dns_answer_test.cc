#include "egress/dns_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::egress {
namespace {

using Message = std::vector<std::uint8_t>;

void add(Message& to, const Message& more) { to.insert(to.end(), more.begin(), more.end()); }

DnsLookup lookup() { return {0x1234, policy::canonical_host("a.org").value(), DnsType::kA}; }

// The question with the header of an answer; its name is at 12, "org" at 14.
Message answer(std::uint8_t records) {
  Message message = write_dns_lookup(lookup());
  message[2] = 0x81;
  message[3] = 0x80;
  message[7] = records;
  return message;
}

Message record(const Message& owner, std::uint8_t type, const Message& data) {
  Message result = owner;
  add(result, {0, type, 0, 1, 0, 0, 0, 60, 0, static_cast<std::uint8_t>(data.size())});
  add(result, data);
  return result;
}

const Message kSelf = {0xc0, 12};

std::vector<std::string> texts(const Parsed<DnsAnswer>& result) {
  std::vector<std::string> list;
  for (const policy::IpAddress& address : result.value.addresses) {
    list.push_back(address.text());
  }
  return list;
}

TEST(DnsAnswer, ALookupIsOneQuestion) {
  const Message expected = {0x12, 0x34, 1, 0,   0,   1,   0, 0, 0, 0, 0, 0,
                            1,    'a',  3, 'o', 'r', 'g', 0, 0, 1, 0, 1};
  EXPECT_EQ(write_dns_lookup(lookup()), expected);
  EXPECT_EQ(parse_dns_query(expected).value.name->text(), "a.org");
}

TEST(DnsAnswer, HasTheAddressesOfTheName) {
  Message message = answer(3);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  add(message, record({1, 'A', 0xc0, 14}, 1, {1, 2, 3, 5}));
  add(message, record({1, 'b', 0xc0, 14}, 1, {6, 6, 6, 6}));
  const auto result = parse_dns_answer(message, lookup());
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_THAT(texts(result), testing::ElementsAre("1.2.3.4", "1.2.3.5"));
}

TEST(DnsAnswer, FollowsAliasesButNotForEver) {
  Message message = answer(3);
  add(message, record({1, 'c', 0xc0, 14}, 1, {1, 2, 3, 4}));
  add(message, record({1, 'b', 0xc0, 14}, 5, {1, 'c', 0xc0, 14}));
  add(message, record(kSelf, 5, {1, 'b', 0xc0, 14}));
  EXPECT_THAT(texts(parse_dns_answer(message, lookup())), testing::ElementsAre("1.2.3.4"));
  Message circle = answer(2);
  add(circle, record(kSelf, 5, {1, 'b', 0xc0, 14}));
  add(circle, record({1, 'b', 0xc0, 14}, 5, kSelf));
  EXPECT_TRUE(parse_dns_answer(circle, lookup()).is_refused());
}

TEST(DnsAnswer, NamesThatPointForwardOrToThemselvesAreRefused) {
  for (const Message& owner : {Message{0xc0, 23}, Message{0xc0, 24}, Message{0xff, 0xff},
                               Message{1, 'x', 0xc0, 23}, Message{0xc0}, Message{0x80, 12}}) {
    Message message = answer(1);
    add(message, record(owner, 1, {1, 2, 3, 4}));
    EXPECT_TRUE(parse_dns_answer(message, lookup()).is_refused());
  }
}

TEST(DnsAnswer, IsToThisLookup) {
  const auto refused = [](const Message& message) {
    return parse_dns_answer(message, lookup()).is_refused();
  };
  Message message = answer(1);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  EXPECT_FALSE(refused(message));
  for (const std::size_t at : {0U, 1U, 13U, 15U, 20U, 22U}) {
    Message changed = message;
    changed[at] ^= 1;
    EXPECT_TRUE(refused(changed)) << at;
  }
  Message query = message;
  query[2] = 1;
  EXPECT_TRUE(refused(query));
  Message loud = message;
  loud[13] = 'A';  // the case of letters does not matter
  EXPECT_FALSE(refused(loud));
}

TEST(DnsAnswer, WhatIsCutOffIsRefused) {
  Message message = answer(1);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_TRUE(parse_dns_answer(Bytes(message).first(size), lookup()).is_refused()) << size;
  }
  for (const Message& data : {Message{}, Message{1, 2, 3}, Message{1, 2, 3, 4, 5}}) {
    Message odd = answer(1);
    add(odd, record(kSelf, 1, data));
    EXPECT_TRUE(parse_dns_answer(odd, lookup()).is_refused());
  }
  Message alias = answer(1);
  add(alias, record(kSelf, 5, {1, 'b', 0xc0, 14, 9}));
  EXPECT_TRUE(parse_dns_answer(alias, lookup()).is_refused());
}

TEST(DnsAnswer, SaysWhyThereAreNone) {
  Message message = answer(0);
  message[3] = 0x83;
  EXPECT_EQ(parse_dns_answer(message, lookup()).value.code, DnsCode::kNoSuchName);
  message[3] = 0x8f;
  EXPECT_EQ(parse_dns_answer(message, lookup()).value.code, DnsCode::kServerFailure);
  message[3] = 0x80;
  message[2] = 0x83;
  EXPECT_TRUE(parse_dns_answer(message, lookup()).value.truncated);
}

}  // namespace
}  // namespace carrel::egress
