#include "dns/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::dns {
namespace {

using Octets = std::vector<std::uint8_t>;

void add(Octets& to, const Octets& more) { to.insert(to.end(), more.begin(), more.end()); }

Lookup lookup() { return {0x1234, policy::canonical_host("a.org").value(), RecordType::kA}; }

// The question with the header of an answer; its name is at 12, "org" at 14.
Octets answer(std::uint8_t records) {
  Octets message = write_lookup(lookup());
  message[2] = 0x81;
  message[3] = 0x80;
  message[7] = records;
  return message;
}

Octets record(const Octets& owner, std::uint8_t type, const Octets& data) {
  Octets result = owner;
  add(result, {0, type, 0, 1, 0, 0, 0, 60, 0, static_cast<std::uint8_t>(data.size())});
  add(result, data);
  return result;
}

const Octets kSelf = {0xc0, 12};

std::vector<std::string> address_texts(const Parsed<Answer>& result) {
  std::vector<std::string> list;
  for (const policy::IpAddress& address : result.value.addresses) {
    list.push_back(address.text());
  }
  return list;
}

TEST(DnsMessage, ALookupIsOneQuestion) {
  const Octets expected = {0x12, 0x34, 1, 0,   0,   1,   0, 0, 0, 0, 0, 0,
                           1,    'a',  3, 'o', 'r', 'g', 0, 0, 1, 0, 1};
  EXPECT_EQ(write_lookup(lookup()), expected);
  Lookup large = lookup();
  large.edns_size = 1232;
  Octets with_edns = expected;
  with_edns[11] = 1;
  add(with_edns, {0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(write_lookup(large), with_edns);
  with_edns.insert(with_edns.begin(), {0, 34});
  EXPECT_EQ(write_stream_lookup(large), with_edns);
}

TEST(DnsMessage, HasTheAddressesOfTheName) {
  Octets message = answer(3);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  add(message, record({1, 'A', 0xc0, 14}, 1, {1, 2, 3, 5}));
  add(message, record({1, 'b', 0xc0, 14}, 1, {6, 6, 6, 6}));
  const auto result = parse_answer(message, lookup());
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_THAT(address_texts(result), testing::ElementsAre("1.2.3.4", "1.2.3.5"));
}

TEST(DnsMessage, FollowsAliasesButNotForEver) {
  Octets message = answer(3);
  add(message, record({1, 'c', 0xc0, 14}, 1, {1, 2, 3, 4}));
  add(message, record({1, 'b', 0xc0, 14}, 5, {1, 'c', 0xc0, 14}));
  add(message, record(kSelf, 5, {1, 'b', 0xc0, 14}));
  EXPECT_THAT(address_texts(parse_answer(message, lookup())), testing::ElementsAre("1.2.3.4"));
  Octets circle = answer(2);
  add(circle, record(kSelf, 5, {1, 'b', 0xc0, 14}));
  add(circle, record({1, 'b', 0xc0, 14}, 5, kSelf));
  EXPECT_TRUE(parse_answer(circle, lookup()).is_refused());
}

TEST(DnsMessage, NamesThatPointForwardOrToThemselvesAreRefused) {
  for (const Octets& owner : {Octets{0xc0, 23}, Octets{0xc0, 24}, Octets{0xff, 0xff},
                              Octets{1, 'x', 0xc0, 23}, Octets{0xc0}, Octets{0x80, 12}}) {
    Octets message = answer(1);
    add(message, record(owner, 1, {1, 2, 3, 4}));
    EXPECT_TRUE(parse_answer(message, lookup()).is_refused());
  }
}

TEST(DnsMessage, IsToThisLookup) {
  const auto refused = [](const Octets& message) {
    return parse_answer(message, lookup()).is_refused();
  };
  Octets message = answer(1);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  EXPECT_FALSE(refused(message));
  for (const std::size_t at : {0U, 1U, 13U, 15U, 20U, 22U}) {
    Octets changed = message;
    changed[at] ^= 1;
    EXPECT_TRUE(refused(changed)) << at;
  }
  Octets query = message;
  query[2] = 1;
  EXPECT_TRUE(refused(query));
  Octets loud = message;
  loud[13] = 'A';  // the case of letters does not matter
  EXPECT_FALSE(refused(loud));
}

TEST(DnsMessage, WhatIsCutOffIsRefused) {
  Octets message = answer(1);
  add(message, record(kSelf, 1, {1, 2, 3, 4}));
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_TRUE(parse_answer(Bytes(message).first(size), lookup()).is_refused()) << size;
  }
  for (const Octets& data : {Octets{}, Octets{1, 2, 3}, Octets{1, 2, 3, 4, 5}}) {
    Octets odd = answer(1);
    add(odd, record(kSelf, 1, data));
    EXPECT_TRUE(parse_answer(odd, lookup()).is_refused());
  }
  Octets alias = answer(1);
  add(alias, record(kSelf, 5, {1, 'b', 0xc0, 14, 9}));
  EXPECT_TRUE(parse_answer(alias, lookup()).is_refused());
}

TEST(DnsMessage, AnUnusableAnswerToThisLookupIsNoForgery) {
  Octets circle = answer(1);
  add(circle, record(kSelf, 5, kSelf));
  Octets odd = answer(1);
  add(odd, record(kSelf, 1, {1, 2, 3}));
  Octets forward = answer(1);
  add(forward, record({0xc0, 0xff}, 1, {1, 2, 3, 4}));
  Octets crowded = answer(0);
  crowded[6] = 2;
  for (const Octets& message : {circle, odd, forward, crowded}) {
    const auto own = parse_answer(message, lookup());
    EXPECT_TRUE(own.is_refused());
    EXPECT_TRUE(own.value.unusable) << own.reason;
    for (const std::size_t at : {0U, 1U, 13U, 20U}) {
      Octets forged = message;
      forged[at] ^= 1;
      const auto of_others = parse_answer(forged, lookup());
      EXPECT_TRUE(of_others.is_refused());
      EXPECT_FALSE(of_others.value.unusable) << at;
    }
  }
  EXPECT_FALSE(parse_answer({}, lookup()).value.unusable);
  EXPECT_FALSE(parse_answer(answer(0), lookup()).value.unusable);
}

TEST(DnsMessage, SaysWhyThereAreNone) {
  Octets message = answer(0);
  message[3] = 0x83;
  EXPECT_EQ(parse_answer(message, lookup()).value.code, ResponseCode::kNoSuchName);
  message[3] = 0x8f;
  EXPECT_EQ(parse_answer(message, lookup()).value.code, ResponseCode::kServerFailure);
  message[3] = 0x80;
  message[2] = 0x83;
  EXPECT_TRUE(parse_answer(message, lookup()).value.truncated);
}

TEST(DnsMessage, AComplaintAboutTheFormatNeedsNoQuestion) {
  Octets message = {0x12, 0x34, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(parse_answer(message, lookup()).value.refuses_format());
  message[3] = 0x83;
  EXPECT_TRUE(parse_answer(message, lookup()).is_refused());
  message[3] = 0x81;
  message[0] = 0;
  EXPECT_TRUE(parse_answer(message, lookup()).is_refused());
}

}  // namespace
}  // namespace carrel::dns
