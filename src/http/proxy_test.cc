#include "http/proxy.h"

#include <gtest/gtest.h>

namespace carrel::http {
namespace {

std::string way(const std::string& url, const ProxySettings& settings) {
  const auto proxy = proxy_for(parse_url(url).value(), settings);
  if (!proxy.ok()) {
    return "error";
  }
  return proxy.value().has_value() ? proxy.value()->host + ":" + std::to_string(proxy.value()->port)
                                   : "direct";
}

TEST(ProxyTest, EachSchemeHasItsOwn) {
  const ProxySettings settings{"http://secure:1", "plain:2/", ""};
  EXPECT_EQ(way("https://h/", settings), "secure:1");
  EXPECT_EQ(way("http://h/", settings), "plain:2");
  EXPECT_EQ(way("https://h/", {}), "direct");
}

TEST(ProxyTest, ExceptionsAreReachedDirectly) {
  const ProxySettings settings{"http://p:1", "", "example.org, .internal:443,10.0.0.1"};
  EXPECT_EQ(way("https://example.org/", settings), "direct");
  EXPECT_EQ(way("https://a.example.org/", settings), "direct");
  EXPECT_EQ(way("https://notexample.org/", settings), "p:1");
  EXPECT_EQ(way("https://x.internal/", settings), "direct");
  EXPECT_EQ(way("https://x.internal:8443/", settings), "p:1");
  EXPECT_EQ(way("https://10.0.0.1/", settings), "direct");
  EXPECT_EQ(way("https://h/", {"http://p:1", "", "*"}), "direct");
}

TEST(ProxyTest, NothingOnThisHostGoesThroughAProxy) {
  const ProxySettings settings{"http://p:1", "http://p:1", ""};
  EXPECT_EQ(way("http://127.0.0.1:5000/", settings), "direct");
  EXPECT_EQ(way("https://localhost/", settings), "direct");
}

TEST(ProxyTest, CredentialsAreTheProxysOwn) {
  const auto proxy =
      proxy_for(parse_url("https://h/").value(), {"http://user:p%40ss@p:3128", "", ""});
  ASSERT_TRUE(proxy.ok() && proxy.value().has_value());
  EXPECT_EQ(proxy.value()->host, "p");
  EXPECT_EQ(proxy.value()->authorization, basic_authorization("user", "p@ss"));
  EXPECT_EQ(basic_authorization("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(basic_authorization("a", ""), "Basic YTo=");
  EXPECT_EQ(basic_authorization("", ""), "Basic Og==");
}

TEST(ProxyTest, OtherKindsOfProxiesAreAnError) {
  for (const char* text : {"socks5://p:1", "https://p:1", "http://p:x", "http://"}) {
    EXPECT_EQ(way("https://h/", {text, "", ""}), "error") << text;
  }
}

}  // namespace
}  // namespace carrel::http
