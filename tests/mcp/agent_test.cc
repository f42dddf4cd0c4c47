// Tools of MCP servers in the hands of an agent.
#include <gmock/gmock.h>

#include "mcp/fixture.h"

namespace carrel::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class McpAgent : public McpTest {
 protected:
  struct Call {
    std::string name;
    Json arguments;
  };
  // One turn that makes these calls, one after the other: what `carrel agent run --json` says.
  Json act(const Json& servers, const std::vector<Call>& calls) const {
    Json replies = Json::array();
    for (const Call& call : calls) {
      const Json one{{"name", call.name}, {"arguments", call.arguments}};
      replies.push_back({{"calls", Json::array({one})}});
    }
    replies.push_back({{"text", "done"}});
    const Json script{{"turns", Json::array({Json{{"replies", replies}}})}};
    const Json profile{{"name", "tester"}, {"tools", {"exec"}}, {"mcp", servers}};
    const Run run =
        carrel({"agent", "run", "--json", "--script", file("script.json", script.dump()),
                "--profile", file("profile.json", profile.dump()), "go"});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    return Json::parse(run.out, nullptr, false);
  }
};
CARREL_AS_BOTH(McpAgent);

TEST_P(McpAgent, CallsThemByTheirNames) {
  const Json done =
      act({{"calc", python_sdk("auto")}, {"web", {{"url", serve(Sdk::kTypescriptModern)}}}},
          {{"mcp_calc_add", {{"a", 2}, {"b", 3}}},
           {"mcp_web_echo_text", {{"text", "$(id); `id` '\"\n"}}},
           {"mcp_calc_fails", Json::object()},
           {"mcp_calc_picture", Json::object()},
           {"mcp_calc_divide", Json::object()}});
  const Json& calls = done["turns"][0]["calls"];
  ASSERT_EQ(calls.size(), 5U) << done;
  EXPECT_THAT(calls[0]["output"].get<std::string>(), HasSubstr("5"));
  EXPECT_EQ(calls[1]["output"], "$(id); `id` '\"\n");  // J23: words are data
  EXPECT_THAT(calls[2]["error"].get<std::string>(), Not(HasSubstr("no tool")));
  EXPECT_NE(calls[2]["error"], "");
  EXPECT_EQ(calls[3]["error"], "");
  EXPECT_THAT(calls[4]["error"].get<std::string>(), HasSubstr("no tool 'mcp_calc_divide'"));
}

// R214, R216
TEST_P(McpAgent, ADeadServerStopsNothingAndAProgramIsInARoomOfItsOwn) {
  const std::string canary = file("canary", "the secret of the host");
  const Json inside{{"command", "python3"}, {"args", {"-c", script("odd_server.py"), "good"}}};
  const Json done = act({{"dead", {{"url", "http://127.0.0.1:9/mcp"}}},
                         {"missing", {{"command", "no-such-program"}, {"sandbox", false}}},
                         {"box", inside}},
                        {{"mcp_box_read", {{"path", canary}}},
                         {"mcp_box_read", {{"path", "/etc/passwd"}}},
                         {"exec", {{"command", "echo still here"}}}});
  const Json& calls = done["turns"][0]["calls"];
  ASSERT_EQ(calls.size(), 3U) << done;
  EXPECT_THAT(calls[0].dump(), Not(HasSubstr("the secret of the host")));
  EXPECT_NE(calls[0]["error"], "");
  EXPECT_EQ(calls[1]["error"], "") << calls[1];
  EXPECT_EQ(calls[2]["output"], "still here\n");
  EXPECT_THAT(done["notices"].dump(), HasSubstr("dead"));
  EXPECT_THAT(done["notices"].dump(), HasSubstr("missing"));
}

}  // namespace
}  // namespace carrel::test
