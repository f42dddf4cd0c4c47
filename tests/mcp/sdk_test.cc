// The official SDKs' servers, over both transports and in both eras.
#include <gmock/gmock.h>

#include "mcp/fixture.h"

namespace carrel::test {
namespace {

using testing::HasSubstr;

class McpSdk : public McpTest {
 protected:
  // The same for every server: lists, calls, errors, progress, a time-out and a cancelled call,
  // after which it still answers.
  void exercise(const Json& server, const std::string& version) {
    const auto call = [](const char* tool, const Json& arguments) {
      return Json{{"call", std::string("mcp_sdk_") + tool}, {"arguments", arguments}};
    };
    Json too_slow = call("slow", {{"seconds", 600}});
    too_slow["timeout_ms"] = 400;
    Json cancelled = call("slow", {{"seconds", 600}});
    cancelled["cancel_after_ms"] = 300;
    const Driven driven =
        drive({{"sdk", server}}, {{{"tools", true}},
                                  call("add", {{"a", 2}, {"b", 3}}),
                                  call("echo_text", {{"text", "gr\xc3\xbc\xc3\x9f dich\n"}}),
                                  call("picture", Json::object()),
                                  call("fails", Json::object()),
                                  call("slow", {{"seconds", 0.2}}),
                                  too_slow,
                                  cancelled,
                                  call("echo_text", {{"text", "still there"}}),
                                  call("add", {{"a", "no number"}})});
    ASSERT_FALSE(driven.reports[0].contains("error")) << driven.reports[0];
    EXPECT_EQ(driven.reports[0]["version"], version);
    EXPECT_THAT(driven.reports[0]["name"].get<std::string>(), HasSubstr("-sdk"));
    EXPECT_EQ(driven.reports[0]["tools"], 5) << driven.reports[0];

    // R217
    const Json& add = driven.answers[0]["functions"][0];
    EXPECT_EQ(add["name"], "mcp_sdk_add");
    EXPECT_EQ(add["description"], "Adds two numbers.");
    EXPECT_EQ(add["parameters"]["type"], "object");
    EXPECT_TRUE(add["parameters"]["properties"].contains("b"));

    EXPECT_EQ(driven.answers[1]["structured"]["sum"], 5) << driven.answers[1];
    EXPECT_EQ(driven.answers[2]["text"], "gr\xc3\xbc\xc3\x9f dich\n");
    EXPECT_THAT(driven.answers[3]["image"].get<std::string>(), HasSubstr("image/png:iVBORw0KGgo"));
    EXPECT_EQ(driven.answers[4]["failed"], true) << driven.answers[4];
    // What went wrong inside, the Python SDK keeps to itself.
    EXPECT_THAT(driven.answers[4]["text"].get<std::string>(),
                testing::AnyOf(HasSubstr("it never works"), HasSubstr("Error executing tool")));
    EXPECT_EQ(driven.answers[5]["text"], "at last") << driven.answers[5];
    EXPECT_GE(driven.answers[5]["progress"].get<int>(), 3) << driven.answers[5];
    EXPECT_EQ(driven.answers[6]["error"]["code"], "timeout") << driven.answers[6];
    EXPECT_LT(driven.answers[6]["took_ms"].get<int>(), patient(std::chrono::seconds(3)).count());
    EXPECT_THAT(driven.answers[7]["error"]["message"].get<std::string>(), HasSubstr("cancelled"));
    EXPECT_LT(driven.answers[7]["took_ms"].get<int>(), patient(std::chrono::seconds(3)).count());
    EXPECT_EQ(driven.answers[8]["text"], "still there") << driven.answers[8];
    EXPECT_TRUE(driven.answers[9].contains("error") || driven.answers[9]["failed"] == true)
        << driven.answers[9];
    EXPECT_LT(driven.peak_kib, 100 << 10);
  }
};
CARREL_AS_BOTH(McpSdk);

// R210, R217
TEST_P(McpSdk, PythonOverStdioIsModern) { exercise(python_sdk("auto"), "2026-07-28"); }

// R210
TEST_P(McpSdk, PythonOverStdioIsLegacyWhenThatIsAsked) {
  exercise(python_sdk("legacy"), "2025-11-25");
}

// R210
TEST_P(McpSdk, TypescriptOfTheFirstLineOverStdioIsLegacy) {
  exercise(typescript_sdk(Line::kLegacy), "2025-11-25");
}

// R210
TEST_P(McpSdk, TypescriptOverStdioIsModern) {
  exercise(typescript_sdk(Line::kModern), "2026-07-28");
}

// R210
TEST_P(McpSdk, TypescriptOverStdioIsLegacyWhenThatIsAsked) {
  Json server = typescript_sdk(Line::kModern);
  server["protocol"] = "legacy";
  exercise(server, "2025-11-25");
}

// R211
TEST_P(McpSdk, PythonOverHttpIsModern) { exercise({{"url", serve(Sdk::kPython)}}, "2026-07-28"); }

// R211
TEST_P(McpSdk, PythonOverHttpIsLegacyWhenThatIsAsked) {
  exercise({{"url", serve(Sdk::kPython)}, {"protocol", "legacy"}}, "2025-11-25");
}

// R211
TEST_P(McpSdk, TypescriptOverHttpIsModern) {
  exercise({{"url", serve(Sdk::kTypescriptModern)}}, "2026-07-28");
}

// R211
TEST_P(McpSdk, TypescriptOfTheFirstLineOverHttpIsLegacy) {
  exercise({{"url", serve(Sdk::kTypescript)}}, "2025-11-25");
}

TEST_P(McpSdk, ModernIsRefusedWhereItIsNotSpoken) {
  Json server = typescript_sdk(Line::kLegacy);
  server["protocol"] = "modern";
  const Driven driven = drive({{"sdk", server}}, {});
  EXPECT_THAT(driven.reports[0]["error"]["message"].get<std::string>(),
              HasSubstr("does not speak version 2026-07-28"));
}

}  // namespace
}  // namespace carrel::test
