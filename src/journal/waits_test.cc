#include "journal/waits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace carrel::journal {
namespace {

TEST(Waits, NamesAreTheIndexAndTheBeginningOfTheQuestionsDigest) {
  EXPECT_EQ(wait_name(0, "abc").value(), "ask_question:0:a9993e36");  // SHA-1 of "abc"
  EXPECT_EQ(wait_name(1, "abc").value(), "ask_question:1:a9993e36");
  EXPECT_NE(wait_name(0, "abd").value(), wait_name(0, "abc").value());
}

// A configuration that leaves no algorithm, for whoever reads it. In a process of its own, in
// which OpenSSL has not been used.
TEST(WaitsDeathTest, NamesDoNotDependOnTheConfigurationOfOpenssl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string file = testing::TempDir() + "carrel-openssl-" + std::to_string(::getpid());
  std::ofstream(file) << "openssl_conf = a\n[a]\nalg_section = b\n[b]\n"
                         "default_properties = provider=none\n";
  const auto print_name = [&file] {
    ::setenv("OPENSSL_CONF", file.c_str(), 1);
    std::fputs(wait_name(0, "abc").value().c_str(), stderr);
    std::filesystem::remove(file);  // of this process
    std::exit(0);
  };
  EXPECT_EXIT(print_name(), testing::ExitedWithCode(0), "^ask_question:0:a9993e36$");
  std::filesystem::remove(file);
}

TEST(Waits, AnAnswerIsWhatTheSchemaSays) {
  const char* schema = R"({"type":"object","required":["name"],"additionalProperties":false,
    "properties":{"name":{"type":"string","minLength":2,"maxLength":4},
                  "age":{"type":"integer","minimum":0,"maximum":150},
                  "kind":{"enum":["a","b"]},
                  "list":{"type":"array","maxItems":2,"items":{"type":"boolean"}}}})";
  for (const char* good :
       {R"({"name":"Ada"})", R"({"name":"Ada","age":36,"kind":"a","list":[true]})",
        R"({"name":"äöüß"})"}) {
    EXPECT_TRUE(check_answer(schema, good).ok()) << good;
  }
  for (const char* bad :
       {"", "nothing", "[]", "{}", R"({"name":1})", R"({"name":"A"})", R"({"name":"Adele"})",
        R"({"name":"Ada","age":-1})", R"({"name":"Ada","age":1.5})", R"({"name":"Ada","age":151})",
        R"({"name":"Ada","kind":"c"})", R"({"name":"Ada","list":[1]})",
        R"({"name":"Ada","list":[true,true,true]})", R"({"name":"Ada","more":1})"}) {
    EXPECT_FALSE(check_answer(schema, bad).ok()) << bad;
  }
}

TEST(Waits, WhatASchemaSaysAndNobodyChecksIsRefused) {
  for (const char* schema :
       {R"({"pattern":"^a"})", R"({"type":"date"})", "[]", "{",
        R"({"properties":{"a":{"format":"email"}}})", R"({"items":{"oneOf":[]}})"}) {
    EXPECT_FALSE(check_schema(schema).ok()) << schema;
  }
  EXPECT_TRUE(check_schema("").ok());
  EXPECT_TRUE(check_answer("", "\"anything\"").ok());
  EXPECT_FALSE(check_answer("", "no JSON").ok());
}

}  // namespace
}  // namespace carrel::journal
