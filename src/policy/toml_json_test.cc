#include "policy/toml_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::policy {
namespace {

using testing::HasSubstr;

TEST(TomlJson, DocumentSaysTheSame) {
  const auto json = parse_toml_json(R"(
a = "x"
[t."b c"]
n = -3
list = [1, 2.5, true, { k = "v" }]
)",
                                    "file");
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_EQ(json.value().dump(), R"({"a":"x","t":{"b c":{"list":[1,2.5,true,{"k":"v"}],"n":-3}}})");
}

TEST(TomlJson, WhatHasNoJsonIsRefusedWithItsPlace) {
  EXPECT_THAT(parse_toml_json("\nd = 1979-05-27", "f").error().message, HasSubstr("f:2: dates"));
  EXPECT_THAT(parse_toml_json("d = inf", "f").error().message, HasSubstr("f:1:"));
}

TEST(TomlJson, MalformedTextIsAnErrorWithItsPlace) {
  EXPECT_THAT(parse_toml_json("a = 1\na = 2", "f").error().message, HasSubstr("f:2"));
  EXPECT_THAT(parse_toml_json("a = [}]", "f").error().message, HasSubstr("f"));
  EXPECT_FALSE(parse_toml_json(std::string(300, '.'), "f").ok());
  EXPECT_FALSE(parse_toml_json(std::string(100'000, '#'), "f").ok());
}

}  // namespace
}  // namespace carrel::policy
