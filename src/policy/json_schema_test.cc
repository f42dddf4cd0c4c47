#include "policy/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace carrel::policy {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string wrong(const char* schema, const char* value) {
  const json shape = json::parse(schema);
  EXPECT_TRUE(check_schema(shape, "the answer").ok()) << schema;
  const Status status = check_against_schema(shape, json::parse(value), "the answer");
  return status.ok() ? "" : status.error().message;
}

TEST(JsonSchema, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(wrong(R"({"type":"string"})", "7"), "the answer must be a string, not 7");
  EXPECT_EQ(wrong(R"({"type":["string","null"]})", "7"),
            "the answer must be a string or a null, not 7");
  EXPECT_EQ(wrong(R"({"type":"object","required":["a"]})", "{}"), "the answer needs 'a'");
  EXPECT_EQ(wrong(R"({"properties":{"a":{"minimum":3}}})", R"({"a":2})"), "'a' is less than 3");
  EXPECT_EQ(wrong(R"({"properties":{"a":{"properties":{"b":{"const":1}}}}})", R"({"a":{"b":2}})"),
            "'a.b' must be 1, not 2");
  EXPECT_EQ(wrong(R"({"additionalProperties":false})", R"({"x":1})"), "the answer has no 'x'");
}

TEST(JsonSchema, WholeNumbersAreIntegersHoweverTheyAreWritten) {
  EXPECT_EQ(wrong(R"({"type":"integer"})", "2.0"), "");
  EXPECT_THAT(wrong(R"({"type":"integer"})", "2.5"), HasSubstr("an integer"));
  EXPECT_EQ(wrong(R"({"type":["string","null"]})", "null"), "");
}

TEST(JsonSchema, WhatItDoesNotHoldIsRefused) {
  for (const char* schema : {R"({"pattern":"a"})", R"({"type":"date"})", R"({"type":[]})",
                             R"({"enum":[]})", R"({"items":{"oneOf":[]}})", R"({"required":[1]})",
                             R"({"additionalProperties":{}})", "[]", "true"}) {
    EXPECT_FALSE(check_schema(json::parse(schema), "it").ok()) << schema;
  }
}

TEST(JsonSchema, DepthIsBounded) {
  std::string schema = "{}";
  for (int i = 0; i < 40; ++i) {
    schema = R"({"items":)" + schema + "}";
  }
  EXPECT_FALSE(check_schema(json::parse(schema), "it").ok());
}

}  // namespace
}  // namespace carrel::policy
