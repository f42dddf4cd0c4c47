#include "journal/redact.h"

#include <gtest/gtest.h>

namespace carrel::journal {
namespace {

TEST(Redact, ValuesUnderSecretNamesAreGone) {
  const std::string text =
      redact(R"({"headers":{"Authorization":"Bearer abc","X-Api-Key":"abc","accept":"*/*"},"n":1,)"
             R"("list":[{"password":"abc"}],"clientSecret":{"deep":"abc"}})");
  EXPECT_EQ(text.find("abc"), std::string::npos) << text;
  EXPECT_NE(text.find("*/*"), std::string::npos);
}

TEST(Redact, NamesThatOnlyLookLikeSecretsAreNone) {
  for (const char* name : {"max_tokens", "input_tokens", "author", "authorship", "keyboard"}) {
    EXPECT_FALSE(is_secret_name(name)) << name;
  }
  for (const char* name : {"token", "AUTH_TOKEN", "apiKey", "api-key", "set-cookie", "Password"}) {
    EXPECT_TRUE(is_secret_name(name)) << name;
  }
}

TEST(Redact, HeadersAndAssignmentsInACommandAreGone) {
  const std::string text = redact(
      R"({"command":"curl -H 'Authorization: Bearer abc' http://x; GH_TOKEN=abc make --password=abc"})");
  EXPECT_EQ(text.find("abc"), std::string::npos) << text;
  EXPECT_NE(text.find("http://x"), std::string::npos) << text;
  EXPECT_NE(text.find("make"), std::string::npos) << text;
}

TEST(Redact, LongTextsAreCutAtACharactersEnd) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "ä";
  }
  const std::string cut = cap("x" + text);
  EXPECT_LT(cut.size(), 540U);
  EXPECT_NE(cut.find("801 bytes"), std::string::npos) << cut;
  EXPECT_EQ(cut.substr(499, 2).find('\xc3'), std::string::npos);
  EXPECT_EQ(cap(std::string(500, 'x')), std::string(500, 'x'));
  EXPECT_LT(redact("{\"a\":\"" + std::string(100'000, 'x') + "\"}").size(), 600U);
}

TEST(Redact, WhatIsNoJsonIsAText) {
  EXPECT_EQ(redact("{not json"), "{not json");
  EXPECT_EQ(redact(std::string(1, '\0')), std::string(1, '\0'));
  const std::string deep(100'000, '[');
  EXPECT_LT(redact(deep).size(), 600U);
}

TEST(Redact, TheWholeTextStaysAsItIsWithoutASecret) {
  const std::string json = R"({"b": 1,  "a":"x"})";
  EXPECT_EQ(redact_whole(json).text, json);
  EXPECT_FALSE(redact_whole(json).changed);
  EXPECT_TRUE(redact_whole(R"({"token":"x"})").changed);
}

}  // namespace
}  // namespace carrel::journal
