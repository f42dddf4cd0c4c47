#include "mcp/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string why(const std::string& text) {
  const auto servers = parse_servers(text, "file");
  return servers.ok() ? "" : servers.error().to_string();
}

std::string why_server(const std::string& members) {
  return why(R"({"mcpServers":{"s":{)" + members + "}}}");
}

TEST(McpConfig, JsonInTheShapeThatPeopleKnow) {
  const auto servers = parse_servers(R"({"mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server"], "env": {"KEY": "v=1"}, "cwd": "/srv"},
    "host": {"type": "stdio", "command": "x", "sandbox": false, "timeout": "2m"},
    "web": {"type": "http", "url": "https://example.com/mcp?k=v", "protocol": "modern",
            "headers": {"Authorization": "Bearer x", "X-Api-Key": "y"}},
    "off": {"command": "x", "disabled": true}}})",
                                     "file");
  ASSERT_TRUE(servers.ok()) << servers.error().to_string();
  ASSERT_EQ(servers.value().size(), 3U);
  const auto& files = std::get<StdioServer>(servers.value()[0].server);
  EXPECT_EQ(servers.value()[0].id, "files");
  EXPECT_THAT(files.command.words, ElementsAre("npx", "-y", "server"));
  EXPECT_THAT(files.command.environment, ElementsAre("KEY=v=1"));
  EXPECT_EQ(files.command.directory, "/srv");
  EXPECT_EQ(files.place, Place::kSandbox);
  EXPECT_EQ(std::get<StdioServer>(servers.value()[1].server).place, Place::kHost);
  EXPECT_EQ(servers.value()[1].timeout, std::chrono::minutes(2));
  const auto& web = std::get<HttpServer>(servers.value()[2].server);
  EXPECT_EQ(web.url.host, "example.com");
  ASSERT_EQ(web.headers.size(), 2U);
  EXPECT_EQ(web.headers[0].name, "Authorization");
  EXPECT_EQ(servers.value()[2].protocol, Protocol::kModern);
}

TEST(McpConfig, TomlSaysTheSame) {
  const auto servers = parse_servers(R"(
[mcp_servers.files]
command = "server"
args = ["a"]
sandbox = false
[mcp_servers."the web"]
url = "http://localhost:8000/mcp"
)",
                                     "file");
  ASSERT_TRUE(servers.ok()) << servers.error().to_string();
  ASSERT_EQ(servers.value().size(), 2U);
  EXPECT_EQ(servers.value()[0].id, "files");
  EXPECT_EQ(servers.value()[1].id, "the web");
}

TEST(McpConfig, WhatMakesNoSenseIsRefusedByName) {
  EXPECT_THAT(why("{}"), HasSubstr("file: there is no 'mcpServers'"));
  EXPECT_THAT(why("a = 1"), HasSubstr("unknown key 'a'"));
  EXPECT_THAT(why(R"({"mcpServers":[]})"), HasSubstr("an object"));
  EXPECT_THAT(why_server(""), HasSubstr("MCP server 's': it has neither 'command' nor 'url'"));
  EXPECT_THAT(why_server(R"("command":"x","url":"https://a/")"), HasSubstr("both"));
  EXPECT_THAT(why_server(R"("comand":"x")"), HasSubstr("did you mean 'command'?"));
  EXPECT_THAT(why_server(R"("command":"x","headers":{})"), HasSubstr("headers"));
  EXPECT_THAT(why_server(R"("command":"")"), HasSubstr("empty"));
  EXPECT_THAT(why_server(R"("command":"x","args":["a\u0000b"])"), HasSubstr("NUL"));
  EXPECT_THAT(why_server(R"("command":"x","args":"a b")"), HasSubstr("array of strings"));
  EXPECT_THAT(why_server(R"("command":"x","cwd":"relative")"), HasSubstr("cwd"));
  EXPECT_THAT(why_server(R"("command":"x","env":{"A=B":"c"})"), HasSubstr("env"));
  EXPECT_THAT(why_server(R"("command":"x","protocol":"2025")"), HasSubstr("auto, modern"));
  EXPECT_THAT(why_server(R"("command":"x","type":"http")"), HasSubstr("'type'"));
  EXPECT_THAT(why_server(R"("url":"ftp://x/")"), HasSubstr("MCP server 's'"));
  EXPECT_THAT(why_server(R"("url":"https://x/","type":"sse")"), HasSubstr("/mcp"));
  EXPECT_THAT(why(R"({"mcpServers":{"":{"command":"x"}}})"), HasSubstr("1 to 64"));
  EXPECT_THAT(why(R"({"mcpServers":{"a\u001bb":{"command":"x"}}})"), HasSubstr("1 to 64"));
}

TEST(McpConfig, HeadersCannotSpeakForTheProtocol) {
  for (const char* name : {"Host", "content-length", "Mcp-Session-Id", "MCP-Protocol-Version"}) {
    EXPECT_THAT(why_server(R"("url":"https://x/","headers":{")" + std::string(name) + R"(":"v"})"),
                HasSubstr("not yours"));
  }
  EXPECT_THAT(why_server(R"("url":"https://x/","headers":{"A":"x\r\nB: y"})"),
              HasSubstr("one line"));
  EXPECT_THAT(why_server(R"("url":"https://x/","headers":{"A B":"x"})"), HasSubstr("one line"));
}

}  // namespace
}  // namespace carrel::mcp
