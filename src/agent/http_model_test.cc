#include "agent/http_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "http/test_server.h"

namespace carrel::agent {
namespace {

using namespace std::chrono_literals;
using http::TestServer;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr char kAnswer[] =
    "data: {\"choices\":[{\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\n"
    "data: [DONE]\n\n";

std::string answer(const std::string& status, const std::string& body,
                   const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

class HttpModelTest : public testing::Test {
 protected:
  Result<Reply> ask(const TestServer& server, ModelSettings settings = {}) {
    settings.provider = settings.provider.empty() ? "openai" : settings.provider;
    settings.name = "m";
    settings.base_url = server.url("/v1");
    settings.retries = {3, 20ms, 5000ms};
    auto model = make_http_model(settings);
    EXPECT_TRUE(model.ok());
    Listener listener;
    listener.again = [&](const Error& why, std::chrono::milliseconds pause) {
      again_.push_back(why.message);
      pauses_.push_back(pause);
    };
    return model.value()->ask({"system", messages_, tools_}, listener, cancel_);
  }

  std::vector<Message> messages_ = {{Message::Role::kUser, "hello"}};
  std::vector<const tools::ToolDefinition*> tools_;
  std::vector<std::string> again_;
  std::vector<std::chrono::milliseconds> pauses_;
  tools::Cancel cancel_;
};

TEST_F(HttpModelTest, ABusyProviderIsAskedAgainWhenItSaysSo) {
  std::atomic<int> asked = 0;
  const TestServer server([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write(++asked == 1 ? answer("429 Too Many Requests", R"({"error":{"message":"slow"}})",
                                     "Retry-After: 0.05\r\n")
               : asked == 2 ? answer("503 Unavailable", "")
                            : answer("200 OK", kAnswer));
  });
  auto reply = ask(server);
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->text, "done");
  ASSERT_EQ(pauses_.size(), 2U);
  EXPECT_EQ(pauses_[0], 50ms);
  EXPECT_THAT(again_[0], HasSubstr("slow"));
}

TEST_F(HttpModelTest, AnAnswerThatIsCutOffIsAskedForAgain) {
  std::atomic<int> asked = 0;
  const TestServer server([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    if (++asked == 1) {
      peer.write("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\ndata: {\"choices\":[]}\n\n");
    } else if (asked == 2) {
      peer.write(answer("200 OK", "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"));
    } else {
      peer.write(answer("200 OK", kAnswer));
    }
  });
  auto reply = ask(server);
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->text, "done");
  EXPECT_EQ(asked, 3);
}

TEST_F(HttpModelTest, RetriesHaveAnEndAndRefusalsHaveNone) {
  std::atomic<int> asked = 0;
  const TestServer broken([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    ++asked;
    peer.write(answer("500 Internal", "oops"));
  });
  EXPECT_FALSE(ask(broken).ok());
  EXPECT_EQ(asked, 4);
  asked = 0;
  const TestServer refusing([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    ++asked;
    peer.write(answer("400 Bad", R"({"error":{"message":"no such parameter"}})"));
  });
  auto reply = ask(refusing);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(reply.error().message, HasSubstr("no such parameter"));
}

TEST_F(HttpModelTest, TheKeyIsSentAndIsInNoError) {
  std::string head;
  const TestServer server([&](const TestServer::Peer& peer) {
    head = peer.read_request();
    peer.write(answer("401 No", R"({"error":{"message":"bad key sk-very-secret-1"}})"));
  });
  ModelSettings settings;
  settings.key = "sk-very-secret-1";
  auto reply = ask(server, settings);
  ASSERT_FALSE(reply.ok());
  EXPECT_THAT(head, HasSubstr("Bearer sk-very-secret-1"));
  EXPECT_THAT(reply.error().to_string(), Not(HasSubstr("very-secret")));
  EXPECT_THAT(reply.error().to_string(), HasSubstr("bad key [key]"));
}

TEST_F(HttpModelTest, CancellingEndsAnAnswerThatDoesNotCome) {
  const TestServer server([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    std::this_thread::sleep_for(1s);
  });
  std::thread later([this] {
    std::this_thread::sleep_for(100ms);
    cancel_.ask();
  });
  const auto begun = std::chrono::steady_clock::now();
  auto reply = ask(server);
  later.join();
  ASSERT_FALSE(reply.ok());
  EXPECT_TRUE(tools::is_cancelled(reply.error()));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 900ms);
}

TEST_F(HttpModelTest, ARedirectDoesNotTakeTheConversationElsewhere) {
  const TestServer server([&](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write(answer("307 Moved", "", "Location: http://127.0.0.1:1/\r\n"));
  });
  EXPECT_FALSE(ask(server).ok());
}

TEST(RequestTest, CallsThatWereNoneAreSentAsWhatAProviderReads) {
  const std::vector<Message> messages = {
      {Message::Role::kUser, "go"},
      {Message::Role::kAssistant, "", {{"c1", "ex ec\n", "{not json"}}},
      {Message::Role::kTool, "", {}, {{"c1", "that was no JSON", true}}}};
  const std::vector<const tools::ToolDefinition*> none;
  const ModelSettings settings{.provider = "anthropic", .name = "m"};
  const Json anthropic = Json::parse(anthropic_request(settings, {"s", messages, none}));
  EXPECT_EQ(anthropic["messages"][1]["content"][0]["input"], Json::object());
  EXPECT_EQ(anthropic["messages"][1]["content"][0]["name"], "unknown");
  EXPECT_EQ(anthropic["messages"][2]["role"], "user");
  EXPECT_EQ(anthropic["messages"][2]["content"][0]["is_error"], true);
  const Json openai = Json::parse(openai_request(settings, {"s", messages, none}));
  EXPECT_EQ(openai["messages"][0]["role"], "system");
  EXPECT_EQ(openai["messages"][2]["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(openai["messages"][3]["role"], "tool");
}

TEST(RequestTest, AConversationReadsBackAsItWas) {
  const std::vector<Message> messages = {
      {Message::Role::kUser, "go"},
      {Message::Role::kAssistant, "text", {{"c1", "exec", "{\"a\":1"}}},
      {Message::Role::kTool, "", {}, {{"c1", "out", true, "aW1n", "image/png"}}}};
  auto again = messages_from_json(messages_to_json(messages));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(messages_to_json(again.value()), messages_to_json(messages));
  EXPECT_FALSE(messages_from_json("[7]").ok());
  EXPECT_FALSE(messages_from_json("x").ok());
}

TEST(RetryAfterTest, SecondsAreReadAndNothingElse) {
  EXPECT_EQ(parse_retry_after("2"), 2000ms);
  EXPECT_EQ(parse_retry_after("0.5"), 500ms);
  for (const char* text : {"", "-1", "soon", "1e99", "Wed, 21 Oct 2026 07:28:00 GMT", "nan"}) {
    EXPECT_FALSE(parse_retry_after(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace carrel::agent
