#include "http/url.h"

#include <gtest/gtest.h>

namespace carrel::http {
namespace {

TEST(UrlTest, PartsAreTakenApart) {
  const auto url = parse_url("HTTPS://Example.org:8443/a/b?c=d#e");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url.value().scheme, Scheme::kHttps);
  EXPECT_EQ(url.value().host, "example.org");
  EXPECT_EQ(url.value().port, 8443);
  EXPECT_EQ(url.value().target, "/a/b?c=d");
  EXPECT_EQ(to_string(url.value()), "https://example.org:8443/a/b");
  EXPECT_EQ(parse_url("http://h").value().port, 80);
  EXPECT_EQ(parse_url("http://h").value().target, "/");
  EXPECT_EQ(parse_url("https://h?q").value().target, "/?q");
  EXPECT_EQ(parse_url("https://[::1]:5000/").value().host, "::1");
  EXPECT_EQ(authority(parse_url("https://[::1]:5000/").value()), "[::1]:5000");
  EXPECT_EQ(authority(parse_url("https://h:443/").value()), "h");
}

TEST(UrlTest, WhatCouldBeReadInTwoWaysIsRefused) {
  for (const char* text : {"",
                           "h",
                           "//h/",
                           "ftp://h/",
                           "file:///etc/passwd",
                           "https://",
                           "https:///x",
                           "https://u@h/",
                           "https://u:p@h/",
                           "https://h:0/",
                           "https://h:65536/",
                           "https://h:1x/",
                           "https://h:/",
                           "https://h /",
                           "https://h/a b",
                           "https://h/\r\nX: y",
                           "https://h/\x80",
                           "https://-h/",
                           "https://.h/",
                           "https://[::1/",
                           "https://[x]/",
                           "https://[::1]x/",
                           "https://h\\@i/",
                           "https://h%2e/"}) {
    EXPECT_FALSE(parse_url(text).ok()) << text;
  }
  EXPECT_FALSE(parse_url("https://h/" + std::string(9000, 'a')).ok());
}

TEST(UrlTest, AUserNameIsNotShownInTheError) {
  const auto url = parse_url("https://name:secret@h/");
  ASSERT_FALSE(url.ok());
  EXPECT_EQ(url.error().to_string().find("secret"), std::string::npos);
}

TEST(UrlTest, LocationsAreSeenFromTheirBase) {
  const Url base = parse_url("https://h:1/a/b?q").value();
  EXPECT_EQ(to_string(resolve_url(base, "http://other/x").value()), "http://other/x");
  EXPECT_EQ(to_string(resolve_url(base, "//other/x").value()), "https://other/x");
  EXPECT_EQ(to_string(resolve_url(base, "/x").value()), "https://h:1/x");
  EXPECT_EQ(to_string(resolve_url(base, "x").value()), "https://h:1/a/x");
  EXPECT_EQ(resolve_url(base, "x?a:b").value().target, "/a/x?a:b");
  EXPECT_FALSE(resolve_url(base, "gopher:x").ok());
}

TEST(UrlTest, LoopbackIsKnownByName) {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
    EXPECT_TRUE(leads_here(host)) << host;
  }
  for (const char* host :
       {"localhost.", "a.localhost.", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:7f00:1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
    EXPECT_TRUE(leads_here(host)) << host;
  }
  for (const char* host : {"128.0.0.1", "localhost.example.org", "127.example.org", "::2",
                           "::ffff:8.8.8.8", "", "."}) {
    EXPECT_FALSE(is_loopback(host)) << host;
    EXPECT_FALSE(leads_here(host)) << host;
  }
}

TEST(UrlTest, QueriesAreEncoded) {
  EXPECT_EQ(encode_query("repository:a/b:pull&x=\xff"), "repository%3Aa%2Fb%3Apull%26x%3D%FF");
}

}  // namespace
}  // namespace carrel::http
