#include "mcp/header_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Json marked(const char* type, const Json& name) { return {{"type", type}, {"x-mcp-header", name}}; }

std::string why(const Json& schema) {
  const auto found = header_parameters(schema);
  return found.ok() ? "" : found.error().message;
}

TEST(McpHeaderParameters, ValuesBecomeHeaders) {
  const Json schema{
      {"properties",
       {{"region", marked("string", "Region")},
        {"deep", {{"properties", {{"n", marked("integer", "N")}, {"b", marked("boolean", "B")}}}}},
        {"other", {{"type", "string"}}}}}};
  const auto parameters = header_parameters(schema);
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  EXPECT_THAT(header_values(parameters.value(),
                            {{"region", "eu"}, {"deep", {{"n", 3}, {"b", true}}}, {"other", "x"}}),
              ElementsAre(Pair("Region", "eu"), Pair("N", "3"), Pair("B", "true")));
  EXPECT_THAT(header_values(parameters.value(), {{"region", nullptr}, {"deep", "text"}}),
              ElementsAre());
}

TEST(McpHeaderParameters, WrongOnesAreRefused) {
  EXPECT_THAT(why({{"x-mcp-header", "A"}}), HasSubstr("property"));
  EXPECT_THAT(why({{"properties", {{"a", marked("number", "A")}}}}), HasSubstr("integer"));
  EXPECT_THAT(why({{"properties", {{"a", marked("string", "A B")}}}}), HasSubstr("name"));
  EXPECT_THAT(why({{"properties", {{"a", marked("string", 7)}}}}), HasSubstr("name"));
  EXPECT_THAT(why({{"properties", {{"a", marked("string", "X\r\nY")}}}}), HasSubstr("name"));
  EXPECT_THAT(why({{"properties", {{"a", marked("string", "A")}, {"b", marked("string", "a")}}}}),
              HasSubstr("twice"));
  EXPECT_THAT(why({{"properties", {{"a", {{"items", marked("string", "A")}}}}}}),
              HasSubstr("property"));
  EXPECT_THAT(why({{"anyOf", {{{"properties", {{"a", marked("string", "A")}}}}}}}),
              HasSubstr("property"));
  EXPECT_EQ(why({{"properties", {{"a", {{"default", marked("string", "A")}}}}}}), "");
}

}  // namespace
}  // namespace carrel::mcp
