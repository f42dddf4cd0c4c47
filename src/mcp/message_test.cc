#include "mcp/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

using testing::HasSubstr;

std::string why_refused(const std::string& text) {
  const auto message = parse_message(text);
  return message.ok() ? "" : message.error().message;
}

TEST(McpMessage, EachKindIsReadAsItWasWritten) {
  const Message request = request_message(7, "tools/list", {{"cursor", "x"}});
  EXPECT_EQ(to_text(request),
            R"({"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}})");
  for (const Message& message :
       {request, notification_message("notifications/cancelled", {{"requestId", 7}}),
        result_message("text", {{"tools", Json::array()}}), error_message({}, -32700, "no")}) {
    const auto read = parse_message(to_text(message));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value().kind, message.kind);
    EXPECT_EQ(read.value().id, message.id);
    EXPECT_EQ(to_text(read.value()), to_text(message));
  }
}

TEST(McpMessage, WhatIsNoMessageIsRefused) {
  EXPECT_THAT(why_refused("hello"), HasSubstr("not JSON"));
  EXPECT_THAT(why_refused("[]"), HasSubstr("not an object"));
  EXPECT_THAT(why_refused(R"([{"jsonrpc":"2.0","id":1,"result":{}}])"), HasSubstr("not an object"));
  EXPECT_THAT(why_refused(R"({"id":1,"result":{}})"), HasSubstr("JSON-RPC 2.0"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":2.0,"id":1,"result":{}})"), HasSubstr("JSON-RPC 2.0"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":1})"), HasSubstr("neither"));
  EXPECT_THAT(
      why_refused(R"({"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}})"),
      HasSubstr("neither"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":1,"result":[]})"), HasSubstr("not an object"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","result":{}})"), HasSubstr("no id"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":null,"method":"x"})"), HasSubstr("no id"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","method":7})"), HasSubstr("method"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","method":"x","params":[1]})"), HasSubstr("params"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":1,"error":"no"})"), HasSubstr("error"));
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":1,"id":2,"result":{}})"), HasSubstr("twice"));
}

TEST(McpMessage, IdsAreBounded) {
  const auto with_id = [](const std::string& id) {
    return R"({"jsonrpc":"2.0","id":)" + id + R"(,"result":{}})";
  };
  EXPECT_EQ(why_refused(with_id("9007199254740991")), "");
  EXPECT_EQ(why_refused(with_id("-5")), "");
  EXPECT_THAT(why_refused(with_id("9007199254740992")), HasSubstr("whole number"));
  EXPECT_THAT(why_refused(with_id("18446744073709551615")), HasSubstr("whole number"));
  EXPECT_THAT(why_refused(with_id("-9223372036854775808")), HasSubstr("whole number"));
  EXPECT_THAT(why_refused(with_id("1.5")), HasSubstr("whole number"));
  EXPECT_THAT(why_refused(with_id("{}")), HasSubstr("whole number"));
  EXPECT_EQ(why_refused(with_id('"' + std::string(256, 'x') + '"')), "");
  EXPECT_THAT(why_refused(with_id('"' + std::string(257, 'x') + '"')), HasSubstr("too long"));
}

TEST(McpMessage, SizeAndDepthAreBounded) {
  EXPECT_THAT(why_refused(std::string(kLargestMessage + 1, ' ')), HasSubstr("longer than"));
  const std::string open(100'000, '[');
  EXPECT_THAT(why_refused(R"({"jsonrpc":"2.0","id":1,"result":{"a":)" + open), HasSubstr("deep"));
}

TEST(McpMessage, WordsOfAPeerAreSafeToShow) {
  EXPECT_EQ(describe({-32000, "red \x1b[31m\nline", {}}), "red \\x1b[31m\\nline (-32000)");
}

}  // namespace
}  // namespace carrel::mcp
