#include "egress/java_trust.h"

#include <gtest/gtest.h>

#include "egress/tls_authority.h"

namespace carrel::egress {
namespace {

std::uint32_t number_at(const std::string& text, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(text.at(i));
  }
  return value;
}

TEST(JavaTrustTest, EveryCertificateIsInItAndNothingElse) {
  auto authority = TlsAuthority::make();
  ASSERT_TRUE(authority.ok());
  const std::string one = authority.value()->certificate().value();
  const std::string key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
  const auto store = java_trust_store("# a remark\n" + one + key + one);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(number_at(store.value(), 0), 0xfeedfeedU);
  EXPECT_EQ(number_at(store.value(), 4), 2U);
  EXPECT_EQ(number_at(store.value(), 8), 2U);
}

TEST(JavaTrustTest, NoCertificatesAreAStoreThatTrustsNobody) {
  const auto store = java_trust_store("");
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(number_at(store.value(), 8), 0U);
  EXPECT_EQ(store.value().size(), 12U + 20U);
}

}  // namespace
}  // namespace carrel::egress
