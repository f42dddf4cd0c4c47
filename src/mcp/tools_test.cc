#include "mcp/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

using testing::HasSubstr;

Json text(const char* words) { return {{"type", "text"}, {"text", words}}; }

std::string why_no_tool(const Json& result) {
  const auto read = read_tool_result(result);
  return read.ok() ? "" : read.error().message;
}

TEST(McpTools, ToolIsRead) {
  const auto tool = read_tool({{"name", "add"},
                               {"description", "adds"},
                               {"inputSchema", {{"type", "object"}}},
                               {"outputSchema", {{"type", "object"}}},
                               {"annotations", {{"readOnlyHint", true}}}});
  ASSERT_TRUE(tool.ok());
  EXPECT_EQ(tool.value().name, "add");
  EXPECT_EQ(tool.value().input_schema.dump(), R"({"type":"object"})");
  EXPECT_TRUE(tool.value().output_schema.is_object());
  EXPECT_EQ(tool.value().annotations["readOnlyHint"], true);
}

TEST(McpTools, ToolThatIsNoneIsRefused) {
  const Json schema{{"type", "object"}};
  EXPECT_FALSE(read_tool(7).ok());
  EXPECT_FALSE(read_tool({{"name", ""}, {"inputSchema", schema}}).ok());
  EXPECT_FALSE(read_tool({{"name", std::string(257, 'x')}, {"inputSchema", schema}}).ok());
  EXPECT_FALSE(read_tool({{"name", "x"}}).ok());
  EXPECT_FALSE(read_tool({{"name", "x"}, {"inputSchema", "object"}}).ok());
  EXPECT_FALSE(
      read_tool({{"name", "x"}, {"inputSchema", {{"description", std::string(300'000, 'x')}}}})
          .ok());
  const Json marked{{"properties", {{"a", {{"x-mcp-header", "no token"}}}}}};
  EXPECT_THAT(read_tool({{"name", "x"}, {"inputSchema", marked}}).error().message,
              HasSubstr("the tool 'x'"));
}

TEST(McpTools, LongDescriptionIsCutAndStaysText) {
  std::string words;
  for (int i = 0; i < 10'000; ++i) {
    words += "\xe2\x82\xac";
  }
  const auto tool =
      read_tool({{"name", "x"}, {"description", words}, {"inputSchema", Json::object()}});
  ASSERT_TRUE(tool.ok());
  EXPECT_LT(tool.value().description.size(), 17'000U);
  EXPECT_NO_THROW(Json(tool.value().description).dump());
}

TEST(McpTools, EveryKindOfContentIsRead) {
  const auto result = read_tool_result(
      {{"content",
        {text("one"),
         {{"type", "image"}, {"data", "AAAA"}, {"mimeType", "image/png"}},
         {{"type", "audio"}, {"data", "AA=="}, {"mimeType", "audio/wav"}},
         {{"type", "resource"}, {"resource", {{"uri", "a://b"}, {"text", "two"}}}},
         {{"type", "resource"}, {"resource", {{"uri", "a://c"}, {"blob", "AAA="}}}},
         {{"type", "resource_link"}, {"uri", "a://d"}, {"name", "d"}},
         {{"type", "hologram"}}}},
       {"structuredContent", {1, 2}}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  using Kind = Content::Kind;
  std::vector<Kind> kinds;
  for (const Content& content : result.value().content) {
    kinds.push_back(content.kind);
  }
  EXPECT_THAT(kinds, testing::ElementsAre(Kind::kText, Kind::kImage, Kind::kAudio, Kind::kResource,
                                          Kind::kResource, Kind::kLink, Kind::kText));
  EXPECT_EQ(result.value().content[1].type, "image/png");
  EXPECT_EQ(result.value().text(), "one\ntwo\na://d\n(content of the type 'hologram' is left out)");
  EXPECT_EQ(result.value().structured.dump(), "[1,2]");
  EXPECT_EQ(result.value().outcome, ToolResult::Outcome::kDone);
}

TEST(McpTools, StructuredResultAloneIsText) {
  const auto result = read_tool_result({{"structuredContent", {{"a", 1}}}, {"isError", true}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().text(), R"({"a":1})");
  EXPECT_EQ(result.value().outcome, ToolResult::Outcome::kFailed);
}

TEST(McpTools, ResultThatIsNoneIsRefused) {
  EXPECT_THAT(why_no_tool(Json::object()), HasSubstr("no content"));
  EXPECT_THAT(why_no_tool({{"content", "text"}}), HasSubstr("no list"));
  EXPECT_THAT(why_no_tool({{"content", {7}}}), HasSubstr("no object"));
  EXPECT_THAT(why_no_tool({{"content", {{{"type", "image"}, {"data", "a b="}}}}}),
              HasSubstr("base64"));
  EXPECT_THAT(why_no_tool({{"content", {{{"type", "image"}, {"data", "A==="}}}}}),
              HasSubstr("base64"));
  EXPECT_THAT(why_no_tool({{"content", {{{"type", "resource"}}}}}), HasSubstr("resource"));
  EXPECT_THAT(why_no_tool({{"content", Json(std::vector<Json>(1025, text("x")))}}),
              HasSubstr("too long"));
}

}  // namespace
}  // namespace carrel::mcp
