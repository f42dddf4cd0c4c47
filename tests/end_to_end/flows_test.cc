// Durable turns, with the finished program and a flow without a model (tests/crash/flow_driver.cc).
#include "support/flows.h"

#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Flows : public CarrelTest {
 protected:
  static json scenario(const json& turns) {
    return {{"execution", "e"}, {"workspace", "w"}, {"turns", turns}};
  }
  // Two turns that write to the workspace and beside it.
  static json two() {
    return scenario({{{"prompt", "1"},
                      {"command", "cd /tmp; touch /tmp/f; echo one > /workspace/one; echo did"}},
                     {{"prompt", "2"},
                      {"command", "pwd; ls /tmp; cat /workspace/one; echo two > /workspace/two"}}});
  }
  FlowRun play(const json& what, const std::vector<std::string>& environment = {}) const {
    return run_flow(GetParam(), what, {.environment = environment});
  }
  json ask(std::vector<std::string> words) const {
    words.push_back("--json");
    const Run run = carrel(std::move(words));
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    return json::parse(run.out, nullptr, false);
  }
};
CARREL_AS_BOTH(Flows);

TEST_P(Flows, AForcedFailureKeepsTheFirstTurnAndTheNextRunGoesOnFromItsFiles) {
  const FlowRun failed = play(two(), {"FORCE_FAILURE=1"});
  EXPECT_EQ(failed.run.status, 1);
  EXPECT_NE(failed.run.err.find("FORCE_FAILURE"), std::string::npos) << failed.run.err;
  ASSERT_EQ(failed.turns.size(), 1U);
  EXPECT_EQ(carrel({"ls", "--json"}).out.find("\"flow\""), std::string::npos);
  EXPECT_EQ(ask({"flow", "show", "e"})["turns"][0]["state"], "finished");

  const FlowRun again = play(two());
  ASSERT_EQ(again.run.status, 0) << again.run.err;
  ASSERT_EQ(again.turns.size(), 2U);
  EXPECT_EQ(again.turns[0].how, "cached");
  EXPECT_EQ(again.turns[1].how, "live");
  EXPECT_EQ(again.ran, std::vector<std::string>{"default_2"});
  EXPECT_EQ(again.turns[1].text, "/workspace\none\n") << "a fresh shell and /tmp, and the files";
  EXPECT_NE(again.run.err.find("warning: turn 'default' comes from the record"), std::string::npos)
      << again.run.err;
  EXPECT_NE(again.run.err.find("turn default finished in"), std::string::npos);
  EXPECT_NE(again.run.err.find("(cached)"), std::string::npos);
}

TEST_P(Flows, ARepeatedRunRunsNothingUnlessTheCacheIsOff) {
  EXPECT_EQ(play(two()).ran.size(), 2U);
  EXPECT_EQ(play(two()).ran.size(), 0U);
  EXPECT_EQ(play(two(), {"DISABLE_CACHE=0"}).ran.size(), 0U);
  EXPECT_EQ(play(two(), {"DISABLE_CACHE=false"}).ran.size(), 0U);
  EXPECT_EQ(play(two(), {"DISABLE_CACHE="}).ran.size(), 0U);
  EXPECT_EQ(play(two(), {"DISABLE_CACHE=1"}).ran.size(), 2U);
  EXPECT_EQ(play(two(), {"DISABLE_CACHE=maybe"}).run.status, 1);
}

TEST_P(Flows, ATurnThatWasToldIsThereAfterAKill) {
  json slow = two();
  slow["turns"][1]["command"] = "sleep 60";
  Process process(flow_launch(GetParam(), slow));
  ASSERT_TRUE(process.wait_for_output("\"how\":\"live\"", seconds(30))) << process.err();
  process.send(SIGKILL);
  (void)process.wait(seconds(10));
  const json shown = ask({"flow", "show", "e"});
  EXPECT_EQ(shown["state"], "interrupted");
  ASSERT_GE(shown["turns"].size(), 1U);
  EXPECT_EQ(shown["turns"][0]["text"], "did\n");
  EXPECT_EQ(play(two()).ran, std::vector<std::string>{"default_2"});
}

TEST_P(Flows, FilesThatAreKeptAreLeftAloneWithAWarning) {
  ASSERT_EQ(play(two()).run.status, 0);
  ASSERT_EQ(bash("echo mine > /workspace/one", {"--workspace", "w"}).status, 0);
  json keep = two();
  keep["files"] = "keep";
  const FlowRun kept = play(keep);
  EXPECT_EQ(kept.run.status, 0) << kept.run.err;
  EXPECT_EQ(kept.ran.size(), 0U);
  EXPECT_NE(kept.run.err.find("is left as it is"), std::string::npos);
  EXPECT_EQ(bash("cat /workspace/one", {"--workspace", "w"}).out, "mine\n");
  const FlowRun back = play(two());
  EXPECT_EQ(bash("cat /workspace/one", {"--workspace", "w"}).out, "one\n");
  EXPECT_NE(back.run.err.find("kept as the snapshot"), std::string::npos) << back.run.err;
}

TEST_P(Flows, TheTimelineHasCommandsExitCodesAndFilesEscaped) {
  ASSERT_EQ(play(scenario({{{"command", "echo a > b; printf 'x\\033[2J\\n'; false"}},
                           {{"command", "rm b; mkdir c; echo '\n{\"turn\": 1}' > c/d"}}}))
                .run.status,
            0);
  const json shown = ask({"flow", "show", "e"});
  const json& first = shown["turns"][0];
  EXPECT_EQ(first["calls"][0]["exit_code"], 1);
  EXPECT_NE(first["calls"][0]["arguments"].get<std::string>().find("echo a > b"),
            std::string::npos);
  EXPECT_EQ(first["files"], json::parse(R"([{"change":"added","path":"b"}])"));
  EXPECT_EQ(shown["turns"][1]["files"].size(), 3U);
  const Run text = carrel({"flow", "show", "e"});
  EXPECT_EQ(text.out.find('\033'), std::string::npos);
  EXPECT_EQ(text.out.find("\n{\"turn\""), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("exit 1"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("A  c/d"), std::string::npos) << text.out;
  EXPECT_EQ(ask({"flow", "turns"})["turns"].size(), 2U);
  EXPECT_EQ(ask({"flow", "ls"})["executions"][0]["execution"], "e");
}

TEST_P(Flows, ATurnCanBeComparedForkedAndRolledBackTo) {
  ASSERT_EQ(play(two()).run.status, 0);
  const Run diff = carrel({"flow", "diff", "e", "2"});
  EXPECT_NE(diff.out.find("+two"), std::string::npos) << diff.out << diff.err;
  EXPECT_EQ(diff.out.find("+one"), std::string::npos) << diff.out;
  EXPECT_EQ(carrel({"flow", "diff", "e", "default", "default_2", "--names"}).out, "A  two\n");

  const Run fork = carrel({"flow", "fork", "e", "1"});
  ASSERT_EQ(fork.status, 0) << fork.err;
  EXPECT_EQ(carrel({"sh", fork.out.substr(0, 36), "ls /workspace"}).out, "one\n");

  const json back = ask({"flow", "rollback", "e", "1"});
  EXPECT_EQ(bash("ls", {"--workspace", "w"}).out, "one\n");
  EXPECT_EQ(carrel({"restore", "w", back["kept"]}).status, 0);
  EXPECT_EQ(bash("ls", {"--workspace", "w"}).out, "one\ntwo\n");
  EXPECT_TRUE(says_one_line(carrel({"flow", "rollback", "e", "9"}), "has no turn '9'"));
  const Box box(GetParam(), {"--workspace", "w"});
  EXPECT_TRUE(says_one_line(carrel({"flow", "rollback", "e", "1"}), "a sandbox runs in"));
}

TEST_P(Flows, AReplayIsANewExecutionInAWorkspaceOfItsOwn) {
  ASSERT_EQ(play(two()).run.status, 0);
  const std::string before = carrel({"flow", "show", "e", "--json"}).out;
  const json replay =
      ask({"flow", "replay", "e", "--workspace", "again", "--set", "2.output=other"});
  EXPECT_EQ(replay["replay_of"], "e");
  EXPECT_EQ(bash("ls", {"--workspace", "again"}).out, "one\ntwo\n");
  const json shown = ask({"flow", "show", replay["execution"]});
  EXPECT_EQ(shown["turns"][0]["state"], "cached");
  EXPECT_EQ(shown["turns"][1]["text"], "other");
  EXPECT_EQ(carrel({"flow", "show", "e", "--json"}).out, before);

  json live = two();
  live["execution"] = "live";
  live["workspace"] = "w";
  live["replay"] = {{"source", "e"}, {"from", "2"}, {"mode", "live"}};
  EXPECT_EQ(play(live).ran, std::vector<std::string>{"default_2"});
  live["execution"] = "recorded";
  live["replay"] = {{"source", "e"},
                    {"overrides", {{{"turn", "2"}, {"name", "last"}, {"value", "x"}}}}};
  const FlowRun missed = play(live);
  EXPECT_EQ(missed.run.status, 1);
  EXPECT_EQ(missed.ran.size(), 0U);
  EXPECT_NE(missed.run.err.find("is not in the record"), std::string::npos) << missed.run.err;
}

TEST_P(Flows, ExplainNamesWhatChanged) {
  json what = two();
  what["turns"][0]["skills"] = {{"SKILL.md", "do this"}};
  ASSERT_EQ(play(what).run.status, 0);
  what["turns"][0]["skills"] = {{"SKILL.md", "do that"}};
  EXPECT_EQ(play(what).ran.size(), 1U) << "the second has the same files and inputs";
  const json why = ask({"flow", "explain", "e", "1"});
  EXPECT_FALSE(why["cached"]);
  ASSERT_EQ(why["changes"].size(), 1U);
  EXPECT_EQ(why["changes"][0]["part"], "skill SKILL.md");
  EXPECT_TRUE(ask({"flow", "explain", "e", "2"})["cached"]);
}

TEST_P(Flows, SnapshotsThatTurnsReferToAreNotForgotten) {
  ASSERT_EQ(play(two()).run.status, 0);
  const std::string snapshot = ask({"flow", "show", "e"})["turns"][0]["snapshot"];
  EXPECT_NE(carrel({"workspace", "forget", snapshot}).status, 0);
  const Run kept = carrel({"workspace", "rm", "w"});
  EXPECT_NE(kept.status, 0);
  EXPECT_NE(kept.err.find("carrel flow rm"), std::string::npos) << kept.err;
  EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "1ms"}).out, "");
  EXPECT_EQ(carrel({"flow", "rm", "e"}).out, "e\n");
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).out, "w\n");
  EXPECT_TRUE(says_one_line(carrel({"flow", "show", "e"}), "Execution e not found"));
}

TEST_P(Flows, AQuestionOutlivesTheRunThatAskedIt) {
  const json asks = scenario({{{"wait", "Deploy?"}}});
  const FlowRun asked = play(asks);
  EXPECT_EQ(asked.run.status, 1);
  EXPECT_NE(asked.run.err.find("nobody has answered yet"), std::string::npos) << asked.run.err;
  const json wait = ask({"flow", "waits"})["waits"][0];
  EXPECT_EQ(wait["question"], "Deploy?");
  EXPECT_NE(carrel({"flow", "answer", "e", wait["name"], "no JSON"}).status, 0);
  EXPECT_EQ(carrel({"flow", "answer", "e", wait["name"], "\"yes\""}).status, 0);
  const FlowRun answered = play(asks);
  ASSERT_EQ(answered.run.status, 0) << answered.run.err;
  EXPECT_EQ(answered.turns[0].text, "\"yes\"");
}

TEST_P(Flows, AnExecutionThatRunsIsNotStartedTwice) {
  json slow = two();
  slow["turns"][0]["command"] = "sleep 60";
  Process process(flow_launch(GetParam(), slow));
  ASSERT_TRUE(process.wait_for_output("ran", seconds(30)));
  // Its sandbox is there, and is not made after the end of this test.
  ASSERT_TRUE(eventually(seconds(20),
                         [&] { return carrel({"ls"}).out.find("flow") != std::string::npos; }));
  json second = two();
  second["sandbox"] = "other";
  const FlowRun refused = play(second);
  EXPECT_NE(refused.run.err.find("is running"), std::string::npos) << refused.run.err;
  EXPECT_EQ(ask({"flow", "ls"})["executions"][0]["state"], "running");
  EXPECT_NE(carrel({"flow", "rm", "e"}).status, 0);
}

}  // namespace
}  // namespace carrel::test
