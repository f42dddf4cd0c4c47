#include "agent/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agent/flow_file.h"
#include "agent/scripted.h"

namespace carrel::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

class Note final : public tools::Tool {
 public:
  explicit Note(std::vector<std::string>& notes)
      : Tool({"note", "notes a text",
              R"({"type":"object","properties":{"text":{"type":"string"}},"required":["text"],
                  "additionalProperties":false})"}),
        notes_(notes) {}
  Result<tools::ToolResult> call(const Json& arguments, const tools::Cancel& /*cancel*/) override {
    if (arguments.at("text") == "stop") {
      return tools::cancelled();
    }
    notes_.push_back(arguments.at("text").get<std::string>());
    return tools::ToolResult{.output = "noted"};
  }

 private:
  std::vector<std::string>& notes_;
};

struct Quiet final : Observer {
  void said(std::string_view text) override { heard += text; }
  void said_all() override {}
  void asked_again(const Error& /*why*/, std::chrono::milliseconds /*pause*/) override {}
  void calls(const ToolCall& /*call*/) override {}
  void called(const ToolCall& /*call*/, const tools::ToolResult& result) override {
    results.push_back(result);
  }
  std::string heard;
  std::vector<tools::ToolResult> results;
};

struct Unrecorded final : Recorder {
  Result<Reply> model(const std::string& /*conversation*/,
                      const std::function<Result<Reply>()>& ask) override {
    return ask();
  }
  Result<tools::ToolResult> tool(
      const ToolCall& /*call*/,
      const std::function<Result<tools::ToolResult>()>& call_it) override {
    return call_it();
  }
};

class LoopTest : public testing::Test {
 protected:
  Result<std::string> run(const std::string& script, const std::string& prompt = "go") {
    if (model_ == nullptr) {
      auto model = make_scripted_model(script, "script");
      EXPECT_TRUE(model.ok()) << model.error().to_string();
      model_ = std::move(model.value());
      EXPECT_TRUE(registry_.add(std::make_unique<Note>(notes_)).ok());
      registry_.close();
    }
    return run_turn(loop(), prompt, messages_);
  }
  // As another run would, with what the journal has.
  Result<std::string> resume() {
    messages_ = messages_from_json(messages_to_json(messages_)).value();
    budget_ = Budget(AgentLimits());
    return go_on(loop(), messages_);
  }
  Loop loop() { return {*model_, registry_, budget_, observer_, recorder_, cancel_, "system"}; }

  std::vector<std::string> notes_;
  std::unique_ptr<Model> model_;
  tools::Registry registry_;
  AgentLimits limits_;
  Budget budget_{limits_};
  Quiet observer_;
  Unrecorded recorder_;
  tools::Cancel cancel_;
  std::vector<Message> messages_;
};

constexpr char kTwoTurns[] = R"(
[[turns]]
[[turns.replies]]
text = "I note it."
calls = [{name = "note", arguments = {text = "one"}}, {name = "note", arguments = {text = "two"}}]
input_tokens = 10
output_tokens = 5
[[turns.replies]]
text = "Noted."
[[turns]]
[[turns.replies]]
text = "Again."
)";

TEST_F(LoopTest, ToolsAreCalledUntilTheModelWantsNone) {
  EXPECT_EQ(run(kTwoTurns).value(), "Noted.");
  EXPECT_THAT(notes_, ElementsAre("one", "two"));
  EXPECT_EQ(observer_.heard, "I note it.Noted.");
  EXPECT_EQ(budget_.usage.total(), 15U);
  EXPECT_EQ(budget_.model_calls, 2U);
  EXPECT_EQ(run(kTwoTurns, "more").value(), "Again.");
}

TEST_F(LoopTest, CallsThatMakeNoSenseAreAnsweredAndTheModelGoesOn) {
  EXPECT_EQ(run(R"(
[[turns]]
[[turns.replies]]
calls = [{name = "note", arguments = "{broken"}, {name = "set_policy", arguments = {network = "full"}},
         {name = "note", arguments = {text = "x", mount = "/:/host:rw"}}, {name = "note"}]
[[turns.replies]]
text = "I see."
)")
                .value(),
            "I see.");
  ASSERT_EQ(observer_.results.size(), 4U);
  for (const tools::ToolResult& result : observer_.results) {
    EXPECT_TRUE(result.failed());
  }
  EXPECT_THAT(observer_.results[1].error, HasSubstr("there is no tool 'set_policy'"));
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(messages_[2].replies[0].failed);
}

TEST_F(LoopTest, StepsHaveALimit) {
  budget_.limits.steps = 2;
  std::string script = "[[turns]]\n";
  for (int i = 0; i < 5; ++i) {
    script += "[[turns.replies]]\ncalls = [{name = \"note\", arguments = {text = \"x\"}}]\n";
  }
  auto done = run(script);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::kResource);
  EXPECT_THAT(done.error().to_string(), HasSubstr("2 steps"));
  EXPECT_EQ(notes_.size(), 2U);
}

TEST_F(LoopTest, AStoppedTurnGoesOnAndAsksForNothingTwice) {
  budget_.limits.steps = 1;
  EXPECT_EQ(run(kTwoTurns).error().code, Code::kResource);
  EXPECT_THAT(notes_, ElementsAre("one", "two"));
  EXPECT_EQ(resume().value(), "Noted.");
  EXPECT_THAT(notes_, ElementsAre("one", "two"));
  EXPECT_EQ(budget_.model_calls, 1U);
  EXPECT_EQ(messages_.size(), 4U);
}

TEST_F(LoopTest, ACallThatWasBegunIsNotMadeAgainAndTheOthersAre) {
  auto stopped = run(R"(
[[turns]]
[[turns.replies]]
calls = [{name = "note", arguments = {text = "one"}}, {name = "note", arguments = {text = "stop"}},
         {name = "note", arguments = {text = "three"}}]
[[turns.replies]]
text = "Noted."
)");
  ASSERT_FALSE(stopped.ok());
  EXPECT_TRUE(tools::is_cancelled(stopped.error()));
  EXPECT_EQ(resume().value(), "Noted.");
  EXPECT_THAT(notes_, ElementsAre("one", "three"));
  ASSERT_EQ(messages_[2].replies.size(), 3U);
  EXPECT_TRUE(messages_[2].replies[1].failed);
  EXPECT_THAT(messages_[2].replies[1].text, HasSubstr("stopped during this call"));
}

TEST_F(LoopTest, TokensAndTimeHaveALimit) {
  budget_.limits.tokens = 12;
  auto done = run(kTwoTurns);
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().to_string(), HasSubstr("12 tokens"));
  messages_.clear();
  budget_ = Budget(limits_);
  budget_.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(run(kTwoTurns).error().code, Code::kResource);
}

TEST_F(LoopTest, CancellingEndsATurn) {
  cancel_.ask();
  auto done = run(kTwoTurns);
  ASSERT_FALSE(done.ok());
  EXPECT_TRUE(tools::is_cancelled(done.error()));
  EXPECT_TRUE(notes_.empty());
}

TEST_F(LoopTest, AScriptThatHasNoMoreRepliesIsAnError) {
  EXPECT_THAT(run("[[turns]]\nreplies = []\n").error().to_string(),
              HasSubstr("no reply 1 in turn 1"));
}

TEST(ScriptedTest, ScriptsAreReadStrictly) {
  for (const char* text :
       {"", "turns = 1", "[[turns]]\nreply = 1", "[[turns]]\nreplies = [{txet = \"x\"}]",
        "[[turns]]\nreplies = [{calls = 1}]", "[[turns]]\nreplies = [{calls = [{}]}]",
        "{\"turns\":[{\"replies\":[7]}]}"}) {
    EXPECT_FALSE(make_scripted_model(text, "script").ok()) << text;
  }
  EXPECT_TRUE(make_scripted_model(R"({"turns":[{"replies":[{"text":"x"}]}]})", "script").ok());
}

TEST(FlowFileTest, PromptsOrTurnsAndNotBoth) {
  auto flow = parse_flow("name = \"demo\"\nprompts = [\"a\", \"b\"]\n", "f");
  ASSERT_TRUE(flow.ok());
  EXPECT_EQ(flow->turns.size(), 2U);
  EXPECT_EQ(
      parse_flow("name = \"d\"\n[[turns]]\nname = \"x\"\nprompt = \"p\"\n", "f")->turns[0].name,
      "x");
  for (const char* text :
       {"", "name = \"d\"", "prompts = [\"a\"]", "name = \"../d\"\nprompts = [\"a\"]",
        "name = \"d\"\nprompts = []", "name = \"d\"\nprompts = [\"\"]",
        "name = \"d\"\nprompts = [\"a\"]\nturns = []",
        "name = \"d\"\nprompts = [\"a\"]\nmounts = [\"/\"]"}) {
    EXPECT_FALSE(parse_flow(text, "f").ok()) << text;
  }
}

}  // namespace
}  // namespace carrel::agent
