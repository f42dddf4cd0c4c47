// Several commands side by side, each with what it alone was given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/networked.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

template <typename Fixture>
class TasksTest : public Fixture {
 protected:
  std::map<std::string, json> run_tasks(const std::string& text, int status = 0) {
    this->file("plan.toml", text);
    const Run done = this->carrel({"tasks", "--json", "plan.toml"});
    EXPECT_EQ(done.status, status) << done.out << done.err;
    std::map<std::string, json> results;
    const json parsed = json::parse(done.out, nullptr, false);
    for (const json& task : parsed.value("tasks", json::array())) {
      results[task["name"]] = task;
    }
    return results;
  }
};
class Tasks : public TasksTest<CarrelTest> {};
CARREL_AS_BOTH(Tasks);
class TasksNetwork : public TasksTest<NetworkedTest> {};
CARREL_AS_BOTH(TasksNetwork);

// R274
TEST_P(TasksNetwork, EachHasItsOwnFilesAndNetworkAndSeesNothingOfTheOther) {
  const std::string data = place().work(GetParam()) + "/data";
  std::filesystem::create_directory(data);
  ::chmod(data.c_str(), 0755);
  place().give(data, GetParam());
  file("data/for_b", "only for b\n");
  // Both are there at the same time: each waits a second, and together they take less than two.
  const std::string probe =
      "echo mine > /tmp/mine; echo mine > /workspace/mine; sleep 1\n"
      "echo data:$(cat /data/for_b 2>&1)\n"
      "echo tmp:$(ls /tmp | wc -l) work:$(ls /workspace | wc -l) others:$(pgrep -c sleep)\n"
      "python3 -c \"$PROBE\"\n";
  const std::string text = "[tasks.a]\ncommand = '''" + probe + "'''\n[tasks.b]\ncommand = '''" +
                           probe + "'''\nmount = [\"" + data +
                           ":/data\"]\nnetwork = [\"allowed.test\"]\n";
  const std::string fetch =
      "[tasks.X.env]\nPROBE = \"\"\"" + fetching("https://allowed.test/x") + "\"\"\"\n";
  std::string both = text;
  for (const char* name : {"a", "b"}) {
    std::string one = fetch;
    one.replace(one.find('X'), 1, name);
    both += one;
  }
  auto results = run_tasks(both);
  ASSERT_EQ(results.size(), 2U);
  const std::string a = results["a"].value("stdout", "");
  const std::string b = results["b"].value("stdout", "");
  EXPECT_THAT(a, HasSubstr("No such file"));
  EXPECT_THAT(a, HasSubstr("tmp:1 work:1 others:0"));
  EXPECT_THAT(a, HasSubstr("failed:"));
  EXPECT_THAT(b, HasSubstr("data:only for b"));
  EXPECT_THAT(b, HasSubstr("tmp:1 work:1 others:0"));
  EXPECT_THAT(b, HasSubstr("hello from allowed.test /x"));
}

// R274
TEST_P(Tasks, TheyRunAtTheSameTimeAndNotMoreThanWasSaid) {
  const std::string one = "command = \"date +%s%N; sleep 2; date +%s%N\"\n";
  const std::string two = "[tasks.a]\n" + one + "[tasks.b]\n" + one;
  struct Span {
    long long begun = 0;
    long long ended = 0;
  };
  const auto overlap = [&](const std::string& text) {
    auto results = run_tasks(text);
    Span a;
    Span b;
    std::istringstream(results["a"].value("stdout", "")) >> a.begun >> a.ended;
    std::istringstream(results["b"].value("stdout", "")) >> b.begun >> b.ended;
    EXPECT_GT(a.begun, 0);
    EXPECT_GT(b.begun, 0);
    return a.begun < b.ended && b.begun < a.ended;
  };
  EXPECT_TRUE(overlap(two));
  EXPECT_FALSE(overlap("at_once = 1\n" + two));
}

TEST_P(Tasks, FailureOfOneIsToldAndTheOthersGoOn) {
  auto results = run_tasks(
      "[tasks.bad]\ncommand = \"echo oh >&2; exit 3\"\n"
      "[tasks.good]\nargv = [\"cat\"]\nstdin = \"given\"\n"
      "[tasks.slow]\ncommand = \"sleep 30\"\ntimeout = 0.3\n",
      1);
  EXPECT_EQ(results["bad"]["exit_code"], 3);
  EXPECT_EQ(results["bad"]["stderr"], "oh\n");
  EXPECT_EQ(results["good"]["stdout"], "given");
  EXPECT_EQ(results["good"]["success"], true);
  EXPECT_EQ(results["slow"]["timed_out"], true);
  const Run shown = carrel({"tasks", "plan.toml"});
  EXPECT_EQ(shown.status, 1);
  EXPECT_THAT(shown.out, HasSubstr("good | given"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("bad +3 "));
}

// R274
TEST_P(Tasks, NothingRunsIfOneIsRefused) {
  file("plan.toml",
       "[tasks.a]\ncommand = \"true\"\n[tasks.b]\ncommand = \"true\"\nmount = [\"/etc:/x\"]\n");
  const Run refused = carrel({"tasks", "plan.toml"});
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "task 'b': "));
  EXPECT_EQ(carrel({"tasks", "none.toml"}).status, 125);
}

}  // namespace
}  // namespace carrel::test
