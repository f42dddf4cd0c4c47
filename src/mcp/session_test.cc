#include "mcp/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <thread>

#include "base/unique_fd.h"
#include "http/test_server.h"
#include "mcp/http_transport.h"
#include "mcp/stdio_transport.h"
#include "support/patience.h"

namespace carrel::mcp {
namespace {

using http::TestServer;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// A request over HTTP as a server sees it.
struct Seen {
  std::string head;
  Json body;
};

Seen read_post(const TestServer::Peer& peer) {
  Seen seen;
  seen.head = peer.read_request();
  const std::size_t at = seen.head.find("Content-Length: ");
  if (at != std::string::npos) {
    std::string body(std::stoul(seen.head.substr(at + 16)), '\0');
    (void)!::recv(peer.fd, body.data(), body.size(), MSG_WAITALL);
    seen.body = Json::parse(body, nullptr, false);
  }
  return seen;
}

std::string answer(int status, const std::string& type, const std::string& body,
                   const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

std::string result(const Json& id, const Json& value) {
  return Json{{"jsonrpc", "2.0"}, {"id", id}, {"result", value}}.dump();
}

std::string json(const Json& id, const Json& value, const std::string& headers = "") {
  return answer(200, "application/json", result(id, value), headers);
}

const Json kDiscovery{{"resultType", "complete"},
                      {"supportedVersions", {"2026-07-28"}},
                      {"capabilities", {{"tools", Json::object()}}}};
const Json kInitialized{{"protocolVersion", "2025-11-25"},
                        {"capabilities", Json::object()},
                        {"serverInfo", {{"name", "s"}, {"version", "1"}}}};

Patience soon(int ms = 5000, int cancel = -1) {
  return {http::Clock::now() + milliseconds(ms), cancel};
}

Result<std::unique_ptr<Session>> open(const TestServer& server, Protocol protocol = Protocol::kAuto,
                                      int ms = 5000) {
  const std::string url = server.url("/mcp");
  return Session::open(
      [url]() -> Result<std::unique_ptr<Transport>> {
        return std::unique_ptr<Transport>(std::make_unique<HttpTransport>(
            HttpPlace{http::parse_url(url).value(), {{"X-Key", "secret"}}, {}}));
      },
      protocol, soon(ms));
}

// Answers `server/discover` as a modern server, and everything else with `reply`.
TestServer::Handler modern(std::function<std::string(const Seen&)> reply) {
  return [reply = std::move(reply)](const TestServer::Peer& peer) {
    const Seen seen = read_post(peer);
    if (seen.head.empty()) {
      return;
    }
    peer.write(seen.body["method"] == "server/discover" ? json(seen.body["id"], kDiscovery)
                                                        : reply(seen));
  };
}

TEST(McpSession, ModernRequestOverHttpSaysWhatItIsInItsHead) {
  Seen last;
  TestServer server(modern([&](const Seen& seen) {
    last = seen;
    return json(seen.body["id"], {{"resultType", "complete"}});
  }));
  auto session = open(server);
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  EXPECT_EQ(session.value()->era(), Era::kModern);
  const Question question{.method = "tools/call",
                          .params = {{"name", "gr\xc3\xbc\xc3\x9f"}},
                          .name = "gr\xc3\xbc\xc3\x9f",
                          .parameters = {{"Region", "eu"}}};
  ASSERT_TRUE(session.value()->ask(question, soon()).ok());
  EXPECT_THAT(last.head, HasSubstr("POST /mcp HTTP/1.1\r\n"));
  EXPECT_THAT(last.head, HasSubstr("\r\nMCP-Protocol-Version: 2026-07-28\r\n"));
  EXPECT_THAT(last.head, HasSubstr("\r\nMcp-Method: tools/call\r\n"));
  EXPECT_THAT(last.head, HasSubstr("\r\nMcp-Name: =?base64?Z3LDvMOf?=\r\n"));
  EXPECT_THAT(last.head, HasSubstr("\r\nMcp-Param-Region: eu\r\n"));
  EXPECT_THAT(last.head, HasSubstr("\r\nX-Key: secret\r\n"));
  EXPECT_EQ(last.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

TEST(McpSession, LegacyServerHasASessionThatIsEnded) {
  std::vector<std::string> heads;
  {
    TestServer server([&](const TestServer::Peer& peer) {
      const Seen seen = read_post(peer);
      heads.push_back(seen.head);
      if (seen.head.starts_with("DELETE") || !seen.body.contains("id")) {
        peer.write("HTTP/1.1 202 x\r\nContent-Length: 0\r\n\r\n");
      } else if (seen.body["method"] == "initialize") {
        peer.write(json(seen.body["id"], kInitialized, "Mcp-Session-Id: abc\r\n"));
      } else if (seen.body["method"] == "server/discover") {
        peer.write("HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n");
      } else {
        peer.write(json(seen.body["id"], Json::object()));
      }
    });
    auto session = open(server);
    ASSERT_TRUE(session.ok()) << session.error().to_string();
    EXPECT_EQ(session.value()->era(), Era::kLegacy);
    EXPECT_EQ(session.value()->about().name, "s");
    ASSERT_TRUE(session.value()->ask({.method = "tools/list"}, soon()).ok());
    session.value().reset();
  }
  ASSERT_EQ(heads.size(), 5U);
  EXPECT_THAT(heads[1], Not(HasSubstr("Mcp-Session-Id")));
  EXPECT_THAT(heads[1], Not(HasSubstr("MCP-Protocol-Version")));
  for (const std::size_t later : {2U, 3U, 4U}) {
    EXPECT_THAT(heads[later], HasSubstr("\r\nMcp-Session-Id: abc\r\n"));
    EXPECT_THAT(heads[later], HasSubstr("\r\nMCP-Protocol-Version: 2025-11-25\r\n"));
    EXPECT_THAT(heads[later], Not(HasSubstr("Mcp-Method")));
  }
  EXPECT_THAT(heads[4], HasSubstr("DELETE /mcp"));
}

TEST(McpSession, ForgottenSessionIsOpenedAgain) {
  int opened = 0;
  TestServer server([&](const TestServer::Peer& peer) {
    const Seen seen = read_post(peer);
    if (seen.head.starts_with("DELETE") || !seen.body.contains("id")) {
      peer.write("HTTP/1.1 202 x\r\nContent-Length: 0\r\n\r\n");
    } else if (seen.body["method"] == "initialize") {
      ++opened;
      peer.write(json(seen.body["id"], kInitialized,
                      "Mcp-Session-Id: s" + std::to_string(opened) + "\r\n"));
    } else if (seen.head.find("Mcp-Session-Id: s2\r\n") == std::string::npos) {
      peer.write("HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n");
    } else {
      peer.write(json(seen.body["id"], {{"n", opened}}));
    }
  });
  auto session = open(server, Protocol::kLegacy);
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  const auto answered = session.value()->ask({.method = "tools/list"}, soon());
  ASSERT_TRUE(answered.ok()) << answered.error().to_string();
  EXPECT_EQ(answered.value()["n"], 2);
}

TEST(McpSession, StreamOfEventsBringsProgressAndTheAnswer) {
  TestServer server(modern([](const Seen& seen) {
    const Json token = seen.body["params"]["_meta"]["progressToken"];
    const auto event = [](const Json& message) { return "data: " + message.dump() + "\n\n"; };
    const auto progress = [&](const Json& whose, double far) {
      return event({{"jsonrpc", "2.0"},
                    {"method", "notifications/progress"},
                    {"params", {{"progressToken", whose}, {"progress", far}, {"total", 2}}}});
    };
    // Without a length: nobody waits for the end of the stream.
    return "HTTP/1.1 200 x\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
           ": hello\n\nid: 1\ndata:\n\n" +
           progress(token, 1) + progress("another", 5) + progress(token, 2) +
           "data: " + result(seen.body["id"], {{"x", 7}}) + "\n\n";
  }));
  auto session = open(server);
  ASSERT_TRUE(session.ok());
  std::vector<double> heard;
  const auto answered = session.value()->ask(
      {.method = "tools/call",
       .progress = [&](const Progress& one) { heard.push_back(one.progress); }},
      soon());
  ASSERT_TRUE(answered.ok()) << answered.error().to_string();
  EXPECT_EQ(answered.value()["x"], 7);
  EXPECT_THAT(heard, testing::ElementsAre(1, 2));
}

struct Bad {
  const char* what;
  std::function<std::string(const Seen&)> reply;
  const char* message;
};

TEST(McpSession, WrongAnswersOverHttpAreErrors) {
  const auto plain = [](int status, const std::string& type, const std::string& body) {
    return [=](const Seen&) { return answer(status, type, body); };
  };
  const std::vector<Bad> all = {
      {"html", plain(200, "text/html", "<html>"), "ended its answer"},
      {"not json", plain(200, "application/json", "{"), "not a message"},
      {"empty", plain(200, "application/json", ""), "ended its answer"},
      {"accepted", plain(202, "application/json", ""), "ended its answer"},
      {"batch", plain(200, "application/json", "[]"), "not an object"},
      {"forbidden", plain(403, "text/plain", "no"), "status 403"},
      {"unavailable", plain(503, "text/plain", "no"), "status 503"},
      {"wrong id", [](const Seen&) { return json(4711, Json::object()); }, "nobody asked"},
      {"text id", [](const Seen&) { return json("1", Json::object()); }, "nobody asked"},
      {"old id", [](const Seen&) { return json(1, Json::object()); }, "ended its answer"},
      {"cut stream", plain(200, "text/event-stream", "data: {\"jsonrpc\""), "ended its answer"},
      {"huge event", plain(200, "text/event-stream", "data: " + std::string(9 << 20, 'x')),
       "longer than"},
      {"huge body", plain(200, "application/json", std::string(9 << 20, ' ')), "too long"},
      {"redirect",
       [](const Seen&) { return answer(307, "text/plain", "", "Location: /elsewhere\r\n"); },
       "redirects a POST"},
      {"refusal",
       [](const Seen& seen) {
         return answer(400, "application/json",
                       Json{{"jsonrpc", "2.0"},
                            {"id", seen.body["id"]},
                            {"error", {{"code", -32602}, {"message", "no\x1b[1m"}}}}
                           .dump());
       },
       "refuses tools/call: no\\x1b[1m (-32602)"},
      {"asks for input",
       [](const Seen& seen) { return json(seen.body["id"], {{"resultType", "input_required"}}); },
       "asks for input"},
      {"task", [](const Seen& seen) { return json(seen.body["id"], {{"resultType", "task"}}); },
       "\"task\""},
  };
  for (const Bad& bad : all) {
    TestServer server(modern(bad.reply));
    auto session = open(server);
    ASSERT_TRUE(session.ok()) << bad.what;
    const auto answered = session.value()->ask({.method = "tools/call"}, soon());
    ASSERT_FALSE(answered.ok()) << bad.what;
    EXPECT_THAT(answered.error().message, HasSubstr(bad.message)) << bad.what;
  }
}

TEST(McpSession, ServerThatWantsToKnowWhoAsksIsNotTakenForAnOldOne) {
  for (const int status : {401, 403, 500}) {
    int asked = 0;
    TestServer server([&](const TestServer::Peer& peer) {
      (void)read_post(peer);
      ++asked;
      peer.write(answer(status, "text/plain", "no"));
    });
    const auto session = open(server);
    ASSERT_FALSE(session.ok());
    EXPECT_THAT(session.error().message, HasSubstr("status " + std::to_string(status)));
    EXPECT_EQ(asked, 1);
  }
}

TEST(McpSession, ServerOfAnotherTimeIsRefused) {
  TestServer server([](const TestServer::Peer& peer) {
    const Seen seen = read_post(peer);
    peer.write(answer(
        400, "application/json",
        Json{{"jsonrpc", "2.0"},
             {"id", seen.body["id"]},
             {"error",
              {{"code", -32022}, {"message", "no"}, {"data", {{"supported", {"2030-01-01"}}}}}}}
            .dump()));
  });
  const auto session = open(server);
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.error().message, HasSubstr("no version"));
}

TEST(McpSession, CallOverHttpCanBeCancelledAndTheNextOneWorks) {
  TestServer server([](const TestServer::Peer& peer) {
    const Seen seen = read_post(peer);
    if (seen.head.empty()) {
      return;
    }
    if (seen.body["method"] == "server/discover") {
      peer.write(json(seen.body["id"], kDiscovery));
    } else if (seen.body["params"].contains("wait")) {
      char c = 0;
      EXPECT_EQ(::recv(peer.fd, &c, 1, 0), 0) << "the client hangs up";
    } else {
      peer.write(json(seen.body["id"], Json::object()));
    }
  });
  auto session = open(server);
  ASSERT_TRUE(session.ok());
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC));
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(50));
    (void)::eventfd_write(cancel.get(), 1);
  });
  const Question question{.method = "tools/call", .params = {{"wait", true}}};
  const auto cancelled = session.value()->ask(question, soon(60'000, cancel.get()));
  canceller.join();
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, Code::kGone);
  const auto late = session.value()->ask(question, soon(100));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_TRUE(session.value()->ask({.method = "tools/call"}, soon()).ok());
}

Result<std::unique_ptr<Session>> open_shell(const std::string& script, int ms = 5000) {
  return Session::open(
      [script]() -> Result<std::unique_ptr<Transport>> {
        CARREL_ASSIGN(auto process, start_on_host({{"/bin/sh", "-c", script}, {"WORD=v"}, "/"}));
        return std::unique_ptr<Transport>(std::make_unique<StdioTransport>(std::move(process)));
      },
      Protocol::kAuto, soon(ms));
}

constexpr const char* kDiscovers =
    R"(read line; echo '{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}';)";

TEST(McpSession, ModernServerOverStdio) {
  auto session = open_shell(std::string(kDiscovers) +
                            R"(read line; echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":
{\"w\":\"$WORD\",\"d\":\"$PWD\",\"s\":\"$CARREL_SECRET_OF_TEST\"}}" | tr -d '\n'; echo; read line)");
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  EXPECT_EQ(session.value()->era(), Era::kModern);
  ::setenv("CARREL_SECRET_OF_TEST", "secret", 1);
  const auto answered = session.value()->ask({.method = "tools/call"}, soon());
  ASSERT_TRUE(answered.ok()) << answered.error().to_string();
  EXPECT_EQ(answered.value()["w"], "v");
  EXPECT_EQ(answered.value()["d"], "/");
}

TEST(McpSession, EnvironmentOfThisProcessIsNotPassedOn) {
  ::setenv("CARREL_SECRET_OF_TEST", "secret", 1);
  const auto session = open_shell("env >&2; exit 1");
  ::unsetenv("CARREL_SECRET_OF_TEST");
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(session.error().to_string(), HasSubstr("WORD=v"));
  EXPECT_THAT(session.error().to_string(), Not(HasSubstr("secret")));
}

TEST(McpSession, EndOfAServerIsToldWithItsLastWords) {
  auto session = open_shell(std::string(kDiscovers) + "read line; echo 'no more' >&2; exit 4");
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  for (int i = 0; i < 2; ++i) {
    const auto answered = session.value()->ask({.method = "tools/call"}, soon());
    ASSERT_FALSE(answered.ok());
    EXPECT_EQ(answered.error().code, Code::kUnavailable);
    EXPECT_THAT(answered.error().to_string(), HasSubstr("ended with exit status 4"));
    EXPECT_THAT(answered.error().to_string(), HasSubstr("no more"));
  }
}

TEST(McpSession, ServerThatDoesNotReadIsWaitedForNoLongerThanAsked) {
  auto session = open_shell(std::string(kDiscovers) + "exec sleep 600");
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  const Question large{.method = "tools/call", .params = {{"x", std::string(4 << 20, 'x')}}};
  const auto begin = http::Clock::now();
  for (int i = 0; i < 4; ++i) {
    const auto answered = session.value()->ask(large, soon(200));
    ASSERT_FALSE(answered.ok());
    EXPECT_EQ(answered.error().code, Code::kTimeout) << answered.error().to_string();
  }
  EXPECT_EQ(session.value()->ask(large, soon(200)).error().code, Code::kResource);
  EXPECT_EQ(session.value()->ask({.method = "x"}, soon(200)).error().code, Code::kUnavailable);
  session.value().reset();
  // Under sanitizers most of it goes into writing the texts.
  EXPECT_LT(http::Clock::now() - begin, test::patient(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace carrel::mcp
