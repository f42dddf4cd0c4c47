// kill -9 of agents of 20 turns, at random moments, until they are through: no answer of the model
// is asked for twice in a turn that was finished, and the files are what the turns made.
// CARREL_SEED repeats a run, CARREL_AGENT_CRASHES sets how many kills there are for each user.
#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "remains.h"
#include "support/fake_model.h"
#include "support/fixture.h"
#include "trees.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr unsigned long kCrashes = 15;
constexpr int kTurns = 20;

std::string turn_name(int number) {
  return number == 1 ? "default" : "default_" + std::to_string(number);
}

class AgentKill : public CarrelTest {
 protected:
  // Each turn adds its number to a file, and says how many lines there are.
  static json steps() {
    json turns = json::array();
    for (int i = 1; i <= kTurns; ++i) {
      const std::string number = std::to_string(i);
      const json call = {
          {"name", "exec"},
          {"arguments", {{"command", "cd /workspace; echo " + number + " >> log; wc -l < log"}}}};
      turns.push_back(json::array({json{{"text", "I add."}, {"calls", json::array({call})}},
                                   json{{"text", "Turn " + number + " is done."}}}));
    }
    return json{{"turns", turns}};
  }
  std::vector<std::string> words(const std::string& name, const FakeModel& model) const {
    std::string prompts;
    for (int i = 1; i <= kTurns; ++i) {
      prompts += "\"do " + std::to_string(i) + "\", ";
    }
    return {"agent",
            "run",
            "--file",
            file("flow.toml", "name = \"" + name + "\"\nprompts = [" + prompts + "]\n"),
            "--profile",
            file("profile.toml", "[model]\nprovider = \"openai\"\nname = \"m\"\nbase_url = \"" +
                                     model.url() + "/v1\"\nretry_delay = 0.05\n")};
  }
  // The turns that a run has reported as finished.
  static std::set<int> reported(const Run& run) {
    std::set<int> all;
    for (int i = 1; i <= kTurns; ++i) {
      if (run.err.find("turn " + turn_name(i) + " finished") != std::string::npos) {
        all.insert(i);
      }
    }
    return all;
  }
};
CARREL_AS_BOTH(AgentKill);

TEST_P(AgentKill, NoAnswerIsPaidForTwiceInAFinishedTurn) {
  const unsigned long seed = number_from("CARREL_SEED", std::random_device{}());
  const unsigned long most_crashes = number_from("CARREL_AGENT_CRASHES", kCrashes);
  std::mt19937_64 random(seed);
  unsigned long crashes = 0;
  unsigned long longest_us = 500'000;  // about as long as an agent that nobody kills
  for (int round = 0; crashes < most_crashes; ++round) {
    const std::string name = "agent" + std::to_string(round);
    const FakeModel model(place().work(GetParam()) + "/" + name, steps());
    const std::vector<std::string> command = words(name, model);
    std::set<int> finished;
    for (bool through = false; !through;) {
      const std::string what =
          "seed " + std::to_string(seed) + ", crash " + std::to_string(crashes) + ": ";
      const std::size_t asked_before = model.requests().size();
      Process process(launch(command));
      if (crashes < most_crashes) {
        ::usleep(static_cast<useconds_t>(random() % longest_us));
        ::kill(random() % 2 == 0 ? process.pid() : -process.pid(), SIGKILL);
      }
      const Run run = process.wait(seconds(120));
      crashes += run.signal == SIGKILL ? 1 : 0;
      through = run.status == 0;
      if (through && finished.empty()) {
        longest_us = static_cast<unsigned long>(run.duration.count()) * 1000 + 1;
      }
      ASSERT_TRUE(through || run.signal == SIGKILL) << what << run.err;
      const std::vector<json> requests = model.requests();
      for (std::size_t i = asked_before; i < requests.size(); ++i) {
        ASSERT_FALSE(finished.contains(requests[i]["turn"].get<int>()))
            << what << "turn " << requests[i]["turn"] << " was finished";
      }
      finished.merge(reported(run));
    }
    EXPECT_EQ(finished.size(), static_cast<std::size_t>(kTurns));
    std::string expected;
    for (int i = 1; i <= kTurns; ++i) {
      expected += std::to_string(i) + "\n";
    }
    EXPECT_EQ(bash("cat /workspace/log", {"--workspace", "agent-" + name}).out, expected);
    const json left = json::parse(carrel({"ls", "--json"}).out, nullptr, false);
    EXPECT_EQ(left.value("sandboxes", json::array()).size(), 0U) << seed << ": " << left;
    const json shown = json::parse(carrel({"flow", "show", name, "--json"}).out, nullptr, false);
    ASSERT_EQ(shown["turns"].size(), static_cast<std::size_t>(kTurns));
    EXPECT_EQ(shown["turns"].back()["text"], "Turn 20 is done.");
    EXPECT_EQ(lasting_wrong_with_workspaces(GetParam()), "");
    const Run removed = carrel({"flow", "rm", name});
    EXPECT_EQ(removed.status, 0) << seed << ": " << removed.err;
    // Whichever run made it, it goes with the execution.
    EXPECT_EQ(carrel({"workspace", "ls", "--json"}).out, "{\"workspaces\":[]}\n") << seed;
  }
}

}  // namespace
}  // namespace carrel::test
