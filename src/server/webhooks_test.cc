#include "server/webhooks.h"

#include <gtest/gtest.h>

namespace carrel::server {
namespace {

// RFC 4231, cases 1, 2 and 6.
TEST(Webhooks, SignatureIsThatOfTheStandard) {
  EXPECT_EQ(hmac_sha256(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_sha256("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Webhooks, TimeIsSignedToo) {
  EXPECT_NE(sign_event("secret", 1, "body"), sign_event("secret", 2, "body"));
  EXPECT_EQ(sign_event("secret", 1, "body"), "t=1,v1=" + hmac_sha256("secret", "1.body"));
}

TEST(Webhooks, AddressIsEncryptedOrOfThisHostAndHasASecret) {
  const std::string secret(16, 's');
  EXPECT_TRUE(Webhooks::check({"", ""}).ok());
  EXPECT_TRUE(Webhooks::check({"http://127.0.0.1:9/x", secret}).ok());
  EXPECT_TRUE(Webhooks::check({"https://hooks.example/x", secret}).ok());
  EXPECT_EQ(Webhooks::check({"http://hooks.example/x", secret}).error().code, Code::kDenied);
  EXPECT_EQ(Webhooks::check({"https://hooks.example/x", "short"}).error().code, Code::kInvalid);
  EXPECT_FALSE(Webhooks::check({"ftp://x", secret}).ok());
}

}  // namespace
}  // namespace carrel::server
