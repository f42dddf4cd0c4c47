#include "egress/dns_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::egress {
namespace {

using Message = std::vector<std::uint8_t>;

void append(Message& to, const Message& more) { to.insert(to.end(), more.begin(), more.end()); }

Message name(std::initializer_list<std::string_view> labels) {
  Message result;
  for (const std::string_view label : labels) {
    result.push_back(static_cast<std::uint8_t>(label.size()));
    result.insert(result.end(), label.begin(), label.end());
  }
  result.push_back(0);
  return result;
}

Message query(const Message& wire_name, std::uint8_t type) {
  Message result = {0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  append(result, wire_name);
  append(result, {0, type, 0, 1});
  return result;
}

std::vector<policy::IpAddress> addresses(std::initializer_list<std::string_view> list) {
  std::vector<policy::IpAddress> result;
  for (const std::string_view text : list) {
    result.push_back(*policy::IpAddress::parse(text));
  }
  return result;
}

TEST(DnsQuery, IsOneQuestion) {
  const Message bytes = query(name({"WwW", "Example", "org"}), 28);
  const auto result = parse_dns_query(bytes);
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_EQ(result.value.id, 0x1234);
  EXPECT_TRUE(result.value.recursion_desired);
  EXPECT_EQ(result.value.name->text(), "www.example.org");
  EXPECT_EQ(result.value.shown_name, "www.example.org");
  EXPECT_EQ(result.value.type, 28);
  EXPECT_FALSE(result.value.edns_size.has_value());
}

TEST(DnsQuery, CanHaveEdns) {
  Message bytes = query(name({"a", "org"}), 1);
  bytes[11] = 1;
  append(bytes, {0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 4, 0, 10, 0, 0});
  const auto result = parse_dns_query(bytes);
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_EQ(result.value.edns_size, 4096);
  bytes.push_back(0);
  EXPECT_TRUE(parse_dns_query(bytes).is_refused());
}

TEST(DnsQuery, ANameThatNoHostHasIsNone) {
  for (const Message& wire :
       {name({}), name({"a b", "org"}), name({"a.b", "org"}), name({std::string_view("a\0b", 3)}),
        name({"\xc3\xbc", "org"}), name({"1", "2", "3", "4"}), name({"-a", "org"})}) {
    const auto result = parse_dns_query(query(wire, 1));
    ASSERT_TRUE(result.parsed());
    EXPECT_FALSE(result.value.name.has_value()) << result.value.shown_name;
  }
  EXPECT_EQ(parse_dns_query(query(name({"a.b\n", "org"}), 1)).value.shown_name, "a\\046b\\010.org");
  EXPECT_EQ(parse_dns_query(query(name({}), 1)).value.shown_name, ".");
}

TEST(DnsQuery, WhatIsNoneIsRefused) {
  const Message good = query(name({"a", "org"}), 1);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(parse_dns_query(Bytes(good).first(size)).is_refused()) << size;
  }
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Message changed = good;
    changed.at(at) = value;
    return parse_dns_query(changed).is_refused();
  };
  EXPECT_TRUE(with(2, 0x80));   // a response
  EXPECT_TRUE(with(2, 0x28));   // an update
  EXPECT_TRUE(with(5, 0));      // no question
  EXPECT_TRUE(with(5, 2));      // two
  EXPECT_TRUE(with(7, 1));      // an answer
  EXPECT_TRUE(with(9, 1));      // an authority
  EXPECT_TRUE(with(11, 1));     // no EDNS where it says so
  EXPECT_TRUE(with(12, 0xc0));  // a compressed name
  EXPECT_TRUE(with(12, 0x41));  // a label of another kind
  Message more = good;
  more.push_back(0);
  EXPECT_TRUE(parse_dns_query(more).is_refused());
  const std::string label(63, 'a');
  EXPECT_TRUE(parse_dns_query(query(name({label, label, label, label}), 1)).is_refused());
  EXPECT_TRUE(parse_dns_query(Message(5000, 0)).is_refused());
}

TEST(DnsQuery, IsAnsweredWithTheAddressesOfItsType) {
  const auto both = addresses({"198.18.0.7", "fd00::7"});
  const auto asked = parse_dns_query(query(name({"A", "org"}), 1)).value;
  const Message answer =
      write_dns_answer(asked, dns::ResponseCode::kNoError, both, DnsTransport::kUdp);
  const Message expected = {0x12, 0x34, 0x81, 0x80, 0,   1, 0,  1, 0, 0,   0,    0,  1,
                            'A',  3,    'o',  'r',  'g', 0, 0,  1, 0, 1,   0xc0, 12, 0,
                            1,    0,    1,    0,    0,   0, 60, 0, 4, 198, 18,   0,  7};
  EXPECT_EQ(answer, expected);
  const auto six = parse_dns_query(query(name({"a", "org"}), 28)).value;
  const Message long_one =
      write_dns_answer(six, dns::ResponseCode::kNoError, both, DnsTransport::kUdp);
  EXPECT_EQ(long_one[7], 1);
  EXPECT_EQ(long_one.back(), 7);
  for (const std::uint8_t type : Message{12, 16, 65, 255}) {
    const auto other = parse_dns_query(query(name({"a", "org"}), type)).value;
    const Message empty =
        write_dns_answer(other, dns::ResponseCode::kNoError, both, DnsTransport::kUdp);
    EXPECT_EQ(empty[7], 0) << int{type};
    EXPECT_EQ(empty[3] & 0xf, 0);
  }
  EXPECT_EQ(
      write_dns_answer(asked, dns::ResponseCode::kNoSuchName, {}, DnsTransport::kUdp)[3] & 0xf, 3);
  EXPECT_EQ(write_dns_answer(asked, dns::ResponseCode::kRefused, {}, DnsTransport::kUdp)[3] & 0xf,
            5);
}

TEST(DnsQuery, AnAnswerThatDoesNotFitSaysSo) {
  const std::vector<policy::IpAddress> many(100, *policy::IpAddress::parse("198.18.0.7"));
  auto asked = parse_dns_query(query(name({"a", "org"}), 1)).value;
  const Message small =
      write_dns_answer(asked, dns::ResponseCode::kNoError, many, DnsTransport::kUdp);
  EXPECT_LE(small.size(), 512U);
  EXPECT_EQ(small[2] & 2, 2);
  asked.edns_size = 65535;
  const Message large =
      write_dns_answer(asked, dns::ResponseCode::kNoError, many, DnsTransport::kUdp);
  EXPECT_LE(large.size(), 1232U);
  EXPECT_EQ(large[11], 1);
  const Message tcp =
      write_dns_answer(asked, dns::ResponseCode::kNoError, many, DnsTransport::kTcp);
  EXPECT_EQ(tcp[7], 100);
  EXPECT_EQ(tcp[2] & 2, 0);
}

TEST(DnsQuery, WhatIsRefusedIsAnsweredToo) {
  EXPECT_EQ(write_dns_format_error(Message{1}), std::nullopt);
  EXPECT_EQ(write_dns_format_error(Message{1, 2, 0x80, 0}), std::nullopt);
  const Message expected = {1, 2, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(write_dns_format_error(Message{1, 2, 1, 0, 9}), expected);
  EXPECT_EQ((*write_dns_format_error(Message{1, 2, 0x28, 0}))[3] & 0xf, 4);
}

}  // namespace
}  // namespace carrel::egress
