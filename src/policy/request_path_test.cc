#include "policy/request_path.h"

#include <gtest/gtest.h>

namespace carrel::policy {
namespace {

TEST(RequestPath, WhatEveryServerReadsAlikeIsPlain) {
  for (const std::string_view path : {"/", "/a", "/a/", "/a/b.c", "/a..b/...",
                                      "/~u/-_.!$&'()*+,=:@", "/%20", "/%C3%BC", "/%22"}) {
    EXPECT_TRUE(is_plain_path(path)) << path;
  }
}

TEST(RequestPath, WhatServersReadInTwoWaysIsNot) {
  for (const std::string_view path :
       {"",          "a",      "*",         "//",        "/a//b",   "/.",     "/..",     "/a/../b",
        "/a/./b",    "/a/..",  "/%2e%2e/a", "/%2E%2E/a", "/a%2fb",  "/a%2Fb", "/a%5cb",  "/a\\b",
        "/a;b",      "/..;/a", "/a%3Bb",    "/%61dmin",  "/a%252e", "/%00",   "/%0D%0A", "/%7F",
        "/a%",       "/a%2",   "/a%zz",     "/%c3%bc",   "/a b",    "/a\tb",  "/a?b",    "/a#b",
        "/\xc3\xbc", "/a|b",   "/a\"b",     "/a<b",      "/{a}",    "/a^b",   "/a`b"}) {
    EXPECT_FALSE(is_plain_path(path)) << path;
  }
}

TEST(RequestPath, AStarIsAnyText) {
  EXPECT_TRUE(path_matches("/api/*", "/api/a/b"));
  EXPECT_TRUE(path_matches("/api/*", "/api/"));
  EXPECT_FALSE(path_matches("/api/*", "/api"));
  EXPECT_FALSE(path_matches("/api/*", "/apis/a"));
  EXPECT_TRUE(path_matches("/*/git-upload-pack", "/a/b.git/git-upload-pack"));
  EXPECT_FALSE(path_matches("/*/git-upload-pack", "/a/git-upload-packs"));
  EXPECT_TRUE(path_matches("*", ""));
  EXPECT_TRUE(path_matches("/a**b", "/axxb"));
  EXPECT_TRUE(path_matches("/a*b*c", "/abbbcbc"));
  EXPECT_FALSE(path_matches("/a", "/a/"));
  EXPECT_FALSE(path_matches("", "/"));
}

}  // namespace
}  // namespace carrel::policy
