// kill -9 of flows of 20 turns, at random moments, until they are through; what they leave is what
// a flow leaves that nobody killed. CARREL_SEED repeats a run, CARREL_FLOW_CRASHES sets how many
// kills there are for each user.
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "remains.h"
#include "support/fixture.h"
#include "support/flows.h"
#include "trees.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr unsigned long kCrashes = 15;
constexpr int kTurns = 20;
// What is in the workspace, in two lines.
constexpr char kLook[] =
    "cd /workspace; find . -mindepth 1 -printf '%p %y %m %l\\n' | sort | sha256sum; "
    "find . -type f -print0 | sort -z | xargs -0r sha256sum | sha256sum";

class FlowKill : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    seed_ = number_from("CARREL_SEED", std::random_device{}());
    random_.seed(seed_);
  }
  unsigned long pick(unsigned long below) { return random_() % below; }

  // Something that changes the workspace, and depends on what is there.
  std::string change() {
    const std::string n = std::to_string(pick(12));
    const std::string word = std::to_string(random_());
    switch (pick(7)) {
      case 0:
        return "mkdir -p d" + n + " && echo " + word + " > d" + n + "/f";
      case 1:
        return "rm -rf d" + n;
      case 2:
        return "echo " + word + " >> log; chmod 6" + std::to_string(pick(8)) + "0 log";
      case 3:
        return "ln -sfn d" + n + " link" + n;
      case 4:
        return "cat log d*/f 2>/dev/null | sha256sum > sum";
      case 5:
        return "for i in 1 2 3 4 5; do echo " + word + " $i > many$i; done";
      default:
        return "mv d" + n + " moved" + n + " 2>/dev/null; head -c 50000 /dev/zero > zeros" + n;
    }
  }
  json scenario() {
    json turns = json::array();
    for (int i = 0; i < kTurns; ++i) {
      turns.push_back({{"prompt", std::to_string(i)},
                       {"command", "cd /workspace; " + change() + "; " + change() + "; " + kLook}});
    }
    return {{"turns", turns}};
  }
  static json named(json scenario, const std::string& name) {
    for (const char* key : {"flow", "execution", "workspace", "sandbox"}) {
      scenario[key] = name;
    }
    return scenario;
  }
  // A sandbox that a killed run was making may come late: it is ended, and that is all it does.
  std::string look(const std::string& workspace) const {
    for (int tries = 0;; ++tries) {
      const Run looked = bash(kLook, {"--workspace", workspace});
      if (looked.status == 0 || tries == 3) {
        EXPECT_EQ(looked.status, 0) << what_ << looked.err;
        return looked.out;
      }
      (void)carrel({"rm", "--force", workspace});
    }
  }

  // A turn that was told is never run again, and answers the same for ever.
  void check(const FlowRun& flow) {
    for (const std::string& name : flow.ran) {
      ASSERT_FALSE(told_.contains(name)) << what_ << ": " << name << " was finished";
    }
    for (const FlowTurn& turn : flow.turns) {
      const auto [known, fresh] = told_.emplace(turn.name, turn.text);
      ASSERT_EQ(known->second, turn.text) << what_ << ": " << turn.name;
      ASSERT_TRUE(fresh || turn.how == "cached") << what_ << ": " << turn.name;
    }
  }
  // The record has every turn that was told, each was run to its end once, and the last one's
  // files are what it said of them.
  void check_record(const std::string& execution) {
    const json list =
        json::parse(carrel({"flow", "turns", "--json", "--limit", "100000"}).out, nullptr, false);
    std::map<std::string, int> finished;
    for (const json& turn : list.value("turns", json::array())) {
      if (turn["execution"] == execution && turn["state"] == "finished") {
        ++finished[turn["name"]];
      }
    }
    for (const auto& [name, text] : told_) {
      ASSERT_EQ(finished[name], 1) << what_ << ": " << name;
    }
    for (const auto& [name, count] : finished) {
      ASSERT_EQ(count, 1) << what_ << ": " << name;
    }
  }
  void check_files(const std::string& execution) {
    const json shown =
        json::parse(carrel({"flow", "show", execution, "--json"}).out, nullptr, false);
    std::string last;
    std::string text;
    for (const json& turn : shown.value("turns", json::array())) {
      if (turn["state"] == "finished" || turn["state"] == "cached") {
        last = turn["name"];
        text = turn["text"];
      }
    }
    if (last.empty()) {
      return;
    }
    (void)carrel({"rm", "--force", execution});
    // What the killed run had started may still be at it.
    Run back;
    eventually(seconds(60), [&] {
      back = carrel({"flow", "rollback", execution, last});
      return back.err.find("is running") == std::string::npos;
    });
    ASSERT_EQ(back.status, 0) << what_ << back.err;
    ASSERT_EQ(look(execution), text) << what_ << ": the files of " << last;
  }

  const unsigned long crashes_ = number_from("CARREL_FLOW_CRASHES", kCrashes);
  std::map<std::string, std::string> told_;
  std::string what_;

 private:
  unsigned long seed_ = 0;

 protected:
  [[nodiscard]] unsigned long seed() const { return seed_; }

 private:
  std::mt19937_64 random_;
};
CARREL_AS_BOTH(FlowKill);

TEST_P(FlowKill, AFlowThatIsKilledAndRunAgainEndsAsIfNobodyHadKilledIt) {
  unsigned long crashes = 0;
  for (int round = 0; crashes < crashes_; ++round) {
    const json plan = scenario();
    const std::string whole = "whole" + std::to_string(round);
    const std::string name = "killed" + std::to_string(round);
    const FlowRun reference = run_flow(GetParam(), named(plan, whole), {.timeout_seconds = 120});
    ASSERT_EQ(reference.run.status, 0) << reference.run.err;
    ASSERT_EQ(reference.turns.size(), static_cast<std::size_t>(kTurns));
    const auto most = static_cast<unsigned long>(reference.run.duration.count()) * 700;
    told_.clear();
    for (bool through = false; !through;) {
      what_ = "seed " + std::to_string(seed()) + ", crash " + std::to_string(crashes);
      Process process(flow_launch(GetParam(), named(plan, name)));
      if (crashes < crashes_) {
        ::usleep(static_cast<useconds_t>(pick(most)));
        // Alone, so that what it has started goes on, or with that.
        ::kill(pick(2) == 0 ? process.pid() : -process.pid(), SIGKILL);
      }
      const FlowRun flow = read_flow(process.wait(seconds(120)));
      ASSERT_NO_FATAL_FAILURE(check(flow));
      through = flow.run.status == 0;
      crashes += flow.run.signal == SIGKILL ? 1 : 0;
      ASSERT_TRUE(through || flow.run.signal == SIGKILL) << what_ << flow.run.err;
      ASSERT_NO_FATAL_FAILURE(check_record(name));
      if (!through && pick(4) == 0) {
        ASSERT_NO_FATAL_FAILURE(check_files(name));
      }
    }
    for (const FlowTurn& turn : reference.turns) {
      ASSERT_EQ(told_[turn.name], turn.text) << what_ << ": " << turn.name;
    }
    ASSERT_EQ(look(name), look(whole)) << what_;
    ASSERT_EQ(look(name), reference.turns.back().text) << what_;
    ASSERT_EQ(lasting_wrong_with_workspaces(GetParam()), "") << what_;
    for (const std::string& one : {whole, name}) {
      EXPECT_EQ(carrel({"flow", "rm", one}).status, 0) << what_;
      EXPECT_EQ(carrel({"workspace", "rm", one}).status, 0)
          << what_ << ": what killed runs held is let go of";
    }
  }
}

}  // namespace
}  // namespace carrel::test
