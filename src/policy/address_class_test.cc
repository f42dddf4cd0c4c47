#include "policy/address_class.h"

#include <gtest/gtest.h>

#include <utility>

namespace carrel::policy {
namespace {

IpAddress address(std::string_view text) {
  const auto parsed = IpAddress::parse(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(IpAddress());
}

TEST(IpAddress, OneSpellingForEachAddress) {
  for (const auto& [text, canonical] : {
           std::pair{"1.2.3.4", "1.2.3.4"},
           {"0.0.0.0", "0.0.0.0"},
           {"255.255.255.255", "255.255.255.255"},
           {"::", "::"},
           {"::1", "::1"},
           {"0:0:0:0:0:0:0:1", "::1"},
           {"2001:DB8::0001", "2001:db8::1"},
           {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
           {"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
           {"1:0:0:2:0:0:0:3", "1:0:0:2::3"},
           {"fe80::", "fe80::"},
           {"::ffff:1.2.3.4", "1.2.3.4"},
           {"::ffff:102:304", "1.2.3.4"},
           {"64:ff9b::1.2.3.4", "64:ff9b::102:304"},
       }) {
    EXPECT_EQ(address(text).text(), canonical) << text;
    EXPECT_EQ(address(canonical), address(text)) << text;
  }
}

TEST(IpAddress, LegacySpellingsAreNoAddresses) {
  for (const std::string_view text : {"127.1",
                                      "127.0.1",
                                      "2130706433",
                                      "0x7f000001",
                                      "0x7f.0.0.1",
                                      "0177.0.0.1",
                                      "127.0.0.01",
                                      "127.0.0.1.",
                                      "1.2.3.4.5",
                                      "256.0.0.1",
                                      "1.2.3",
                                      "",
                                      ".",
                                      "1..2.3",
                                      " 1.2.3.4",
                                      "1.2.3.4 ",
                                      "+1.2.3.4",
                                      "1.2.3.-4",
                                      "fe80::1%eth0",
                                      "[::1]",
                                      ":::",
                                      "1::2::3",
                                      "12345::",
                                      "::g",
                                      "::ffff:127.1",
                                      "::ffff:0177.0.0.1",
                                      "1:2:3:4:5:6:7:8:9",
                                      ":"}) {
    EXPECT_FALSE(IpAddress::parse(text).has_value()) << text;
  }
  EXPECT_FALSE(IpAddress::parse(std::string_view("::1\0", 4)).has_value());
}

TEST(AddressClass, EveryKindOfAddressIsKnown) {
  for (const auto& [text, kind] : {
           std::pair{"1.1.1.1", AddressClass::kPublic},
           {"9.255.255.255", AddressClass::kPublic},
           {"11.0.0.0", AddressClass::kPublic},
           {"172.15.0.1", AddressClass::kPublic},
           {"172.32.0.1", AddressClass::kPublic},
           {"2606:4700::1111", AddressClass::kPublic},
           {"0.1.2.3", AddressClass::kThisNetwork},
           {"::", AddressClass::kThisNetwork},
           {"127.0.0.1", AddressClass::kLoopback},
           {"127.255.0.1", AddressClass::kLoopback},
           {"::1", AddressClass::kLoopback},
           {"10.0.0.1", AddressClass::kPrivate},
           {"172.17.0.1", AddressClass::kPrivate},
           {"192.168.1.1", AddressClass::kPrivate},
           {"fec0::1", AddressClass::kPrivate},
           {"100.64.0.1", AddressClass::kSharedNat},
           {"100.127.255.255", AddressClass::kSharedNat},
           {"169.254.1.1", AddressClass::kLinkLocal},
           {"fe80::1", AddressClass::kLinkLocal},
           {"fd12::1", AddressClass::kUniqueLocal},
           {"fc00::1", AddressClass::kUniqueLocal},
           {"224.0.0.251", AddressClass::kMulticast},
           {"ff02::fb", AddressClass::kMulticast},
           {"255.255.255.255", AddressClass::kBroadcast},
           {"240.0.0.1", AddressClass::kReserved},
           {"192.0.0.1", AddressClass::kReserved},
           {"192.88.99.1", AddressClass::kReserved},
           {"2001::1", AddressClass::kReserved},
           {"100::1", AddressClass::kReserved},
           {"4000::1", AddressClass::kReserved},
           {"192.0.2.1", AddressClass::kDocumentation},
           {"198.51.100.1", AddressClass::kDocumentation},
           {"203.0.113.1", AddressClass::kDocumentation},
           {"2001:db8::1", AddressClass::kDocumentation},
           {"3fff::1", AddressClass::kDocumentation},
           {"198.18.0.7", AddressClass::kBenchmark},
           {"198.19.255.255", AddressClass::kBenchmark},
           {"2001:2::1", AddressClass::kBenchmark},
       }) {
    EXPECT_EQ(classify(address(text)), kind) << text;
    EXPECT_FALSE(describe(kind).empty());
  }
}

TEST(AddressClass, MetadataServicesAreNotMerelyPrivate) {
  for (const std::string_view text :
       {"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::", "::169.254.169.254"}) {
    EXPECT_EQ(classify(address(text)), AddressClass::kMetadata) << text;
  }
}

TEST(AddressClass, AWrappedAddressIsWhatItWraps) {
  for (const auto& [text, kind] : {
           std::pair{"::ffff:127.0.0.1", AddressClass::kLoopback},
           {"::ffff:10.0.0.1", AddressClass::kPrivate},
           {"64:ff9b::10.0.0.1", AddressClass::kPrivate},
           {"64:ff9b::1.1.1.1", AddressClass::kPublic},
           {"64:ff9b:1::1", AddressClass::kPrivate},
           {"2002:7f00:1::", AddressClass::kLoopback},
           {"2002:c0a8:101::1", AddressClass::kPrivate},
           {"2002:101:101::", AddressClass::kPublic},
           {"::10.0.0.1", AddressClass::kPrivate},
       }) {
    EXPECT_EQ(classify(address(text)), kind) << text;
  }
}

TEST(Prefix, HoldsWhatBeginsWithItsBits) {
  const auto holds = [](std::string_view prefix, std::string_view text) {
    return Prefix::parse(prefix).value().contains(address(text));
  };
  EXPECT_TRUE(holds("10.0.0.0/8", "10.255.255.255"));
  EXPECT_FALSE(holds("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(holds("100.64.0.0/10", "100.127.0.1"));
  EXPECT_FALSE(holds("100.64.0.0/10", "100.128.0.1"));
  EXPECT_TRUE(holds("1.2.3.4", "1.2.3.4"));
  EXPECT_FALSE(holds("1.2.3.4", "1.2.3.5"));
  EXPECT_TRUE(holds("0.0.0.0/0", "255.0.0.1"));
  EXPECT_FALSE(holds("0.0.0.0/0", "2606::1"));
  EXPECT_TRUE(holds("fd00::/8", "fdff::1"));
  EXPECT_FALSE(holds("fd00::/8", "fc00::1"));
  const Prefix ten = Prefix::parse("10.0.0.0/8").value();
  EXPECT_TRUE(ten.contains(Prefix::parse("10.1.0.0/16").value()));
  EXPECT_FALSE(Prefix::parse("10.1.0.0/16").value().contains(ten));
}

TEST(Prefix, ReadsBackAndRefusesTheRest) {
  for (const std::string_view text : {"10.0.0.0/8", "1.2.3.4", "fd00::/8", "::1", "0.0.0.0/0"}) {
    EXPECT_EQ(Prefix::parse(text).value().text(), text);
  }
  EXPECT_EQ(Prefix::parse("1.2.3.4/32").value().text(), "1.2.3.4");
  for (const std::string_view text : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0/-1", "x",
                                      "10.0.0.0/8/8", "::/129", "10/8", "10.0.0.0/ 8"}) {
    EXPECT_FALSE(Prefix::parse(text).ok()) << text;
  }
  const auto bits = Prefix::parse("10.1.2.3/8");
  ASSERT_FALSE(bits.ok());
  EXPECT_EQ(bits.error().hint, "did you mean '10.0.0.0/8'?");
}

}  // namespace
}  // namespace carrel::policy
