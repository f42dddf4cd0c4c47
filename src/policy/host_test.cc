#include "policy/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace carrel::policy {
namespace {

TEST(Host, HasOneSpelling) {
  const std::string label(63, 'a');
  for (const auto& [text, canonical] : {
           std::pair<std::string, std::string>{"example.org", "example.org"},
           {"EXAMPLE.Org.", "example.org"},
           {"a_b.example.org", "a_b.example.org"},
           {"xn--bcher-kva.example", "xn--bcher-kva.example"},
           {"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
           {"bücher.example", "xn--bcher-kva.example"},
           {"r3---sn-x.example.org", "r3---sn-x.example.org"},
           {"localhost", "localhost"},
           {"1.2.3.4.example", "1.2.3.4.example"},
           {"0x7f.example", "0x7f.example"},
           {"0xyz", "0xyz"},
           {label + ".org", label + ".org"},
           {"127.0.0.1", "127.0.0.1"},
           {"2001:DB8::1", "2001:db8::1"},
           {"::ffff:10.0.0.1", "10.0.0.1"},
       }) {
    const auto host = canonical_host(text);
    ASSERT_TRUE(host.ok()) << text << ": " << host.error().to_string();
    EXPECT_EQ(host.value().text(), canonical);
    // And the canonical form is its own.
    EXPECT_EQ(canonical_host(canonical).value(), host.value());
  }
}

TEST(Host, NamesAndAddressesAreTold) {
  EXPECT_TRUE(canonical_host("example.org").value().is_name());
  EXPECT_EQ(canonical_host("example.org").value().address(), nullptr);
  EXPECT_FALSE(canonical_host("10.0.0.1").value().is_name());
  EXPECT_FALSE(Host().is_name());
  EXPECT_NE(canonical_host("10.0.0.1").value(), canonical_host("10.0.0.2").value());
}

TEST(Host, LegacyAddressesAreNeitherNamesNorAddresses) {
  for (const std::string_view text :
       {"2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "127.1", "0",
        "127.0.0.1.", "0x7f.1", "example.0x7f", "example.0x", "a.1", "1.2.3.4.5", "256.1.1.1",
        "127.0.0.0x1", "0X7F.1", "example.org.1"}) {
    const auto host = canonical_host(text);
    ASSERT_FALSE(host.ok()) << text;
    EXPECT_EQ(host.error().code, Code::kInvalid);
  }
}

TEST(Host, WhatIsNotOfANameIsRefused) {
  const std::string label(64, 'a');
  std::string longest;
  for (int i = 0; i < 64; ++i) {
    longest += "abc.";
  }
  for (const std::string& text : {std::string(),
                                  std::string("."),
                                  std::string("a..b"),
                                  std::string(".a"),
                                  std::string("a.."),
                                  std::string("evil.test\0.allowed.test", 23),
                                  std::string("a b"),
                                  std::string("a\tb"),
                                  std::string("a\n"),
                                  std::string("a/b"),
                                  std::string("a@b"),
                                  std::string("a:80"),
                                  std::string("[::1]"),
                                  std::string("fe80::1%eth0"),
                                  std::string("a%00b"),
                                  std::string("-a.org"),
                                  std::string("a-.org"),
                                  std::string("*.org"),
                                  std::string("a,b"),
                                  std::string("a\x7f"),
                                  std::string("a\xff.org"),
                                  std::string("allowed.test\u3002evil"),
                                  std::string("１２７.0.0.1"),
                                  std::string("a;b"),
                                  std::string("a?b"),
                                  std::string("a#b"),
                                  std::string("a\\b"),
                                  label + ".org",
                                  longest + "org"}) {
    const auto host = canonical_host(text);
    ASSERT_FALSE(host.ok()) << text;
    EXPECT_THAT(host.error().message, testing::StartsWith("host '"));
  }
}

TEST(Host, EndpointsHaveBracketsWhereTheyAreNeeded) {
  EXPECT_EQ(endpoint_text(canonical_host("a.org").value(), 443), "a.org:443");
  EXPECT_EQ(endpoint_text(canonical_host("1.2.3.4").value(), 1), "1.2.3.4:1");
  EXPECT_EQ(endpoint_text(canonical_host("::1").value(), 80), "[::1]:80");
}

}  // namespace
}  // namespace carrel::policy
