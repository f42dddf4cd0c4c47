// Servers that go wrong, and servers in sandboxes.
#include <gmock/gmock.h>

#include "mcp/fixture.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr long kMostKib = 150 << 10;

class McpOdd : public McpTest {
 protected:
  static Json read(const std::string& server, const std::string& path = "/etc/passwd") {
    const bool answers = server != "slow" && server != "deaf";
    return {{"call", "mcp_" + server + "_read"},
            {"arguments", {{"path", path}}},
            {"timeout_ms", answers ? 15'000 : 1000}};
  }
  static std::string message(const Json& line) {
    return line.contains("error") ? line["error"]["message"].get<std::string>() : "no error";
  }
};
CARREL_AS_BOTH(McpOdd);

// R214
TEST_P(McpOdd, OneThatCannotBeConnectedToStopsNoOther) {
  const Json servers{{"dead url", {{"url", "http://127.0.0.1:1/mcp"}}},
                     {"no program", {{"command", "/nonexistent/server"}, {"sandbox", false}}},
                     {"ends", {{"command", "/bin/false"}, {"sandbox", false}}},
                     {"silent", odd_server("silent")},
                     {"old", odd_server("old-version")},
                     {"garbage", odd_server("garbage")},
                     {"huge", odd_server("huge-line")},
                     {"deep", odd_server("deep")},
                     {"good", odd_server("good")}};
  const Driven driven = drive(servers, {read("good"), {{"tools", true}}}, 8000);
  EXPECT_THAT(message(driven.reports[0]), HasSubstr("MCP server 'dead url'"));
  EXPECT_THAT(message(driven.reports[0]), HasSubstr("Connection refused"));
  EXPECT_THAT(message(driven.reports[1]), HasSubstr("start '/nonexistent/server'"));
  EXPECT_THAT(message(driven.reports[2]), HasSubstr("ended with exit status 1"));
  EXPECT_THAT(message(driven.reports[3]), HasSubstr("took too long"));
  EXPECT_THAT(message(driven.reports[4]), HasSubstr("'1999-01-01'"));
  EXPECT_THAT(message(driven.reports[5]), HasSubstr("no message on its standard output"));
  EXPECT_THAT(message(driven.reports[6]), HasSubstr("line of more than"));
  EXPECT_EQ(message(driven.reports[7]), "no error") << "one line that is no message is passed over";
  EXPECT_EQ(message(driven.reports[8]), "no error");
  EXPECT_FALSE(driven.answers[0].contains("error")) << driven.answers[0];
  EXPECT_EQ(driven.answers[1]["functions"].size(), 2U);
  EXPECT_LT(driven.duration, patient(seconds(25)));
  EXPECT_LT(driven.peak_kib, kMostKib);
}

// R214
TEST_P(McpOdd, OneThatGoesWrongInACallStopsNoOther) {
  Json servers;
  for (const char* mode :
       {"wrong-id", "duplicate", "dies", "slow", "chatty", "not-base64", "good"}) {
    servers[mode] = odd_server(mode);
  }
  const Driven driven = drive(
      servers, {read("wrong-id"), read("duplicate"), read("duplicate"), read("dies"), read("dies"),
                read("slow"), read("chatty"), read("not-base64"), read("good")});
  for (const Json& report : driven.reports) {
    EXPECT_EQ(message(report), "no error");
  }
  EXPECT_THAT(message(driven.answers[0]), HasSubstr("a question that nobody asked"));
  EXPECT_EQ(driven.answers[1]["text"], "first");
  EXPECT_EQ(driven.answers[2]["text"], "first")
      << "the second answer to the first question is late";
  EXPECT_THAT(message(driven.answers[3]), HasSubstr("ended with exit status 3"));
  EXPECT_THAT(message(driven.answers[3]), HasSubstr("the end"));
  EXPECT_THAT(message(driven.answers[3]), Not(HasSubstr("\x1b")));
  EXPECT_LT(message(driven.answers[3]).size(), 2000U);
  EXPECT_THAT(message(driven.answers[4]), HasSubstr("ended with exit status 3"));
  EXPECT_EQ(driven.answers[5]["error"]["code"], "timeout");
  EXPECT_LT(driven.answers[5]["took_ms"].get<int>(), patient(seconds(4)).count());
  EXPECT_TRUE(driven.answers[6].contains("error"));
  EXPECT_LT(driven.answers[6]["took_ms"].get<int>(), patient(seconds(16)).count());
  EXPECT_THAT(message(driven.answers[7]), HasSubstr("not base64"));
  EXPECT_FALSE(driven.answers[8].contains("error")) << driven.answers[8];
  EXPECT_LT(driven.peak_kib, kMostKib);
  EXPECT_LT(driven.duration, patient(seconds(40)));
}

TEST_P(McpOdd, LateAnswerIsForNobody) {
  Json hasty = read("slow");
  hasty["arguments"]["seconds"] = 1;
  hasty["timeout_ms"] = 500;
  Json patient = read("slow");
  patient["arguments"]["seconds"] = 0;
  patient["timeout_ms"] = 20'000;
  const Driven driven = drive({{"slow", odd_server("slow")}}, {hasty, patient});
  EXPECT_EQ(driven.answers[0]["error"]["code"], "timeout");
  EXPECT_EQ(driven.answers[1]["text"], "after 0");
}

TEST_P(McpOdd, WhatServersMayDoIsTaken) {
  Json servers;
  for (const char* mode : {"greets", "ends-on-probe", "floods-errors", "asks"}) {
    servers[mode] = odd_server(mode);
  }
  const Driven driven =
      drive(servers, {read("greets"), read("ends-on-probe"), read("floods-errors"), read("asks")});
  for (std::size_t i = 0; i < servers.size(); ++i) {
    EXPECT_EQ(message(driven.reports[i]), "no error");
    EXPECT_EQ(message(driven.answers[i]), "no error");
  }
  const Json heard = Json::parse(driven.answers[3]["text"].get<std::string>());
  EXPECT_EQ(heard[0]["id"], "q-ping");
  EXPECT_TRUE(heard[0].contains("result"));
  EXPECT_EQ(heard[1]["error"]["code"], -32601);
  EXPECT_EQ(heard[2]["error"]["code"], -32601);
}

TEST_P(McpOdd, ListsAreBounded) {
  const Driven driven = drive(
      {{"endless", odd_server("endless-list")}, {"circular", odd_server("circular-list")}}, {});
  EXPECT_EQ(driven.reports[0]["tools"], 512);
  EXPECT_THAT(driven.reports[0]["notices"].dump(), HasSubstr("more than 512 tools"));
  EXPECT_EQ(driven.reports[1]["tools"], 0);
  EXPECT_THAT(driven.reports[1]["notices"].dump(), HasSubstr("does not end"));
}

// R212, R219
TEST_P(McpOdd, ToolsOfOneNameAreRefusedVisibly) {
  const Driven driven = drive(
      {{"b", odd_server("bad-tools")}, {"a b", odd_server("good")}, {"a.b", odd_server("good")}},
      {{{"tools", true}}});
  EXPECT_EQ(driven.reports[0]["tools"], 2) << driven.reports[0];
  EXPECT_EQ(driven.reports[0]["notices"].size(), 4U) << driven.reports[0];
  EXPECT_THAT(driven.reports[0]["notices"].dump(),
              HasSubstr("'re ad' is refused: mcp_b_re_ad is the name of 're.ad' of 'b' already"));
  EXPECT_EQ(driven.reports[1]["tools"], 1);
  EXPECT_EQ(driven.reports[2]["tools"], 0);
  EXPECT_THAT(driven.reports[2]["notices"].dump(),
              HasSubstr("mcp_a_b_read is the name of 'read' of 'a b' already"));
  std::vector<std::string> names;
  for (const Json& function : driven.answers[0]["functions"]) {
    names.push_back(function["name"].get<std::string>());
  }
  EXPECT_THAT(names, testing::ElementsAre("mcp_b_read", "mcp_b_re_ad", "mcp_a_b_read"));
}

// R213
TEST_P(McpOdd, DisconnectRemovesExactlyThatServersTools) {
  const Driven driven = drive(
      {{"one", odd_server("good")}, {"one two", odd_server("good")}, {"three", odd_server("good")}},
      {{{"disconnect", "one"}},
       {{"tools", true}},
       read("one"),
       read("one_two"),
       {{"disconnect", "nobody"}},
       {{"disconnect", ""}},
       {{"tools", true}}});
  EXPECT_EQ(driven.answers[0]["connected"].dump(), R"(["one two","three"])");
  EXPECT_EQ(driven.answers[1]["functions"].size(), 2U);
  EXPECT_EQ(driven.answers[2]["error"]["code"], "not_found") << driven.answers[2];
  EXPECT_FALSE(driven.answers[3].contains("error"));
  EXPECT_EQ(driven.answers[4]["error"]["code"], "not_found") << driven.answers[4];
  EXPECT_EQ(driven.answers[5]["connected"].size(), 0U);
  EXPECT_EQ(driven.answers[6]["functions"].size(), 0U);
}

// R216
TEST_P(McpOdd, ServerInASandboxCannotReadACanaryOfTheHost) {
  const std::string canary = file("canary", "the secret of the host");
  const auto server = [](const char* mode) {
    return Json{{"command", "python3"}, {"args", {"-c", script("odd_server.py"), mode}}};
  };
  Json outside = server("good");
  outside["sandbox"] = false;
  const Driven driven = drive({{"out", outside}, {"in", server("good")}, {"dies", server("dies")}},
                              {read("out", canary), read("in", canary), read("in", "/etc/passwd"),
                               read("dies"), read("in", "/proc/1/environ")});
  for (const Json& report : driven.reports) {
    EXPECT_EQ(message(report), "no error");
  }
  EXPECT_EQ(driven.answers[0]["text"], "the secret of the host");
  EXPECT_EQ(driven.answers[1]["failed"], true) << driven.answers[1];
  EXPECT_THAT(driven.answers[1]["text"].get<std::string>(), HasSubstr("No such file"));
  EXPECT_EQ(driven.answers[2]["failed"], false) << "it can read what its sandbox has";
  EXPECT_THAT(message(driven.answers[3]), HasSubstr("exit status 3"));
  EXPECT_THAT(message(driven.answers[3]), HasSubstr("the end"));
  EXPECT_THAT(driven.answers[4].dump(), Not(HasSubstr("CARREL_HOME")));
}

// R216
TEST_P(McpOdd, ServerInASandboxThatDoesNotListenEndsWithItsClient) {
  const Json server{{"command", "python3"}, {"args", {"-c", script("odd_server.py"), "chatty"}}};
  Json deaf = server;
  deaf["args"].back() = "deaf";
  const Driven driven = drive({{"chatty", server}, {"deaf", deaf}}, {read("chatty"), read("deaf")});
  EXPECT_TRUE(driven.answers[0].contains("error"));
  EXPECT_EQ(driven.answers[1]["error"]["code"], "timeout");
  EXPECT_LT(driven.duration, patient(seconds(30)));
}

}  // namespace
}  // namespace carrel::test
