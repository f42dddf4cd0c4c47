// The limits of an ordinary user who was given control groups of his own: the same as root's.
#include "support/given_groups.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class GivenGroupsTest : public testing::Test {
 protected:
  using Run = test::Run;

  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can give a group to a user";
    }
    if (group_mounts().empty()) {
      GTEST_SKIP() << "this host has no control groups";
    }
    renew_place();
    groups_ = std::make_unique<GivenGroups>();
    before_ = Leftovers::snapshot();
  }
  void TearDown() override {
    if (groups_) {
      EXPECT_EQ(left_since(before_), "");
      EXPECT_EQ(groups_->left(), "");
      groups_.reset();
    }
    leave_place();
  }

  Run run_in_groups(const std::string& script, std::vector<std::string> options = {}) const {
    std::vector<std::string> words = {"run", "--cgroup-parent", groups_->path()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "bash", "-c", script});
    return groups_->carrel(words);
  }

  std::unique_ptr<GivenGroups> groups_;

 private:
  Leftovers before_;
};

// R103
TEST_F(GivenGroupsTest, RequiredLimitsAreHeld) {
  Run run = run_in_groups("id -u", {"--require", "memory,cpu,pids"});
  EXPECT_EQ(run.out, "1000\n") << run.err;
  EXPECT_EQ(run.status, 0);
}

// R103: the group it is in is found without being named
TEST_F(GivenGroupsTest, OwnGroupIsFound) {
  Run run = groups_->carrel({"run", "--require", "memory,cpu,pids", "--", "echo", "ran"});
  EXPECT_EQ(run.out, "ran\n") << run.err;
}

// R72, R74
TEST_F(GivenGroupsTest, MemoryLimitKills) {
  Run run = run_in_groups("python3 -c 'x = bytearray(200 << 20)'",
                          {"--memory", "64m", "--require", "memory", "--json"});
  json result = json::parse(run.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << run.out << run.err;
  EXPECT_TRUE(result["oom_killed"]);
  EXPECT_EQ(result["exit_code"], 137);
}

// R75
TEST_F(GivenGroupsTest, HalfACoreIsHalfACore) {
  Run run = run_in_groups("timeout 2 bash -c 'while :; do :; done'; times | tail -1",
                          {"--cpus", "0.5", "--require", "cpu"});
  int minutes = 0;
  double used = 0;
  ASSERT_EQ(std::sscanf(run.out.c_str(), "%dm%lfs", &minutes, &used), 2) << run.out << run.err;
  EXPECT_LT(used, 1.1 + 0.1);
}

// R76
TEST_F(GivenGroupsTest, ProcessLimitHolds) {
  Run run = run_in_groups(
      "exec python3 -c 'import os, time\n"
      "n = 0\n"
      "try:\n"
      "  while n < 200:\n"
      "    if os.fork() == 0: time.sleep(600)\n"
      "    n += 1\n"
      "except BlockingIOError: print(n)'",
      {"--pids", "20", "--require", "pids"});
  EXPECT_EQ(run.out, "19\n") << run.err;
}

// R66, R100
TEST_F(GivenGroupsTest, TimeoutRemovesTheGroup) {
  Run run = run_in_groups("(setsid sleep 600 &); sleep 600", {"--timeout", "500ms"});
  EXPECT_EQ(run.status, 124);
  EXPECT_EQ(groups_->left(), "");
}

// A parent that is not there, or not the user's, is no reason to go on without limits that were
// demanded.
TEST_F(GivenGroupsTest, ParentThatCannotBeUsedIsRefusedWhenLimitsAreRequired) {
  Run run = groups_->carrel(
      {"run", "--cgroup-parent", "/no/such/group", "--require", "memory", "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "memory"));
}

}  // namespace
}  // namespace carrel::test
