// `carrel df` and `carrel prune`, and what goes by itself.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/box.h"
#include "support/fixture.h"
#include "support/host.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr char kScript[] = R"(
[[turns]]
[[turns.replies]]
calls = [{name = "exec", arguments = {command = "head -c 3000000 /dev/urandom > made"}}]
[[turns.replies]]
text = "Done."
)";
// It has no turn.
constexpr char kEmptyScript[] = "turns = []\n";

class DiskUse : public CarrelTest {
 protected:
  json asked(std::vector<std::string> words) {
    words.emplace_back("--json");
    last_ = carrel(std::move(words));
    json object = json::parse(last_.out, nullptr, false);
    EXPECT_TRUE(object.is_object()) << last_.out << last_.err;
    return object.is_object() ? object : json::object();
  }
  std::set<std::string> workspaces() {
    std::set<std::string> names;
    const json list = asked({"workspace", "ls"});
    for (const json& one : list["workspaces"]) {
      names.insert(one["name"]);
    }
    return names;
  }
  std::uint64_t bytes_for(const std::string& kind) {
    const json all = asked({"df"});
    for (const json& one : all["kinds"]) {
      if (one["what"] == kind) {
        return one["disk_bytes"];
      }
    }
    ADD_FAILURE() << "there is no " << kind;
    return 0;
  }
  json agent(const std::string& script, std::vector<std::string> words = {}) {
    words.insert(words.begin(), {"agent", "run", "--script", file("script.toml", script)});
    words.emplace_back("do it");
    return asked(std::move(words));
  }
  // What `prune` says that it removed, as "what name".
  static std::set<std::string> said(const json& pruned) {
    std::set<std::string> names;
    for (const json& one : pruned["removed"]) {
      names.insert(one["what"].get<std::string>() + " " + one["name"].get<std::string>());
    }
    return names;
  }

  Run last_;
};
CARREL_AS_BOTH(DiskUse);

TEST_P(DiskUse, DfTellsWhatTheDiskHas) {
  EXPECT_EQ(bytes_for("workspaces"), 0U);
  ASSERT_EQ(carrel({"run", "--workspace", "w", "--disk", "20m", "--", "sh", "-c",
                    "head -c 6000000 /dev/urandom > f; sync"})
                .status,
            0);
  // As root a file system comes on top, with its journal.
  EXPECT_GE(bytes_for("workspaces"), 6'000'000U);
  EXPECT_LE(bytes_for("workspaces"), as_root() ? 12'000'000U : 7'000'000U);
  const json list = asked({"workspace", "ls"});
  EXPECT_GE(list["workspaces"][0]["disk_bytes"], 6'000'000U) << list;
  EXPECT_LE(list["workspaces"][0]["disk_bytes"], as_root() ? 12'000'000U : 7'000'000U) << list;
  ASSERT_EQ(carrel({"snapshot", "w"}).status, 0);
  EXPECT_GE(bytes_for("snapshots"), 6'000'000U);
  EXPECT_LE(bytes_for("snapshots"), 7'000'000U);
  const json all = asked({"df"});
  std::uint64_t sum = 0;
  for (const json& one : all["kinds"]) {
    sum += one["disk_bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(all["disk_bytes"], sum);
  EXPECT_EQ(all["owners"].size(), 1U);
  EXPECT_TRUE(all["owners"][0]["owner"].is_null()) << all;
  EXPECT_THAT(carrel({"df"}).out, HasSubstr("snapshots"));
  EXPECT_EQ(carrel({"df", "word"}).status, 2);
}

TEST_P(DiskUse, PruneGivesBackTheRoomOfAWorkspaceThatHadAllOfItSetAside) {
  if (!as_root()) {
    GTEST_SKIP() << "an ordinary user's workspaces are folders";
  }
  ASSERT_EQ(carrel({"run", "--workspace", "w", "--disk", "100m", "--", "sh", "-c",
                    "head -c 6000000 /dev/urandom > f; sha256sum f > sum; sync"})
                .status,
            0);
  // What looks after the disk gives back by itself.
  ASSERT_TRUE(
      eventually(std::chrono::seconds(30), [] { return processes_of("disk-watch").empty(); }));
  // As workspaces were made before.
  const std::string disk = place().home(GetParam()) + "/workspaces/w/disk";
  ASSERT_EQ(std::system(("fallocate -l $(stat -c %s " + disk + ") " + disk).c_str()), 0);
  EXPECT_GE(bytes_for("workspaces"), 100'000'000U);
  const json dry = asked({"prune", "--dry-run"});
  EXPECT_THAT(said(dry), ElementsAre("room w"));
  EXPECT_GE(dry["disk_bytes"], 70'000'000U) << dry;
  EXPECT_GE(bytes_for("workspaces"), 100'000'000U);
  const json done = asked({"prune"});
  EXPECT_THAT(said(done), ElementsAre("room w"));
  EXPECT_GE(done["disk_bytes"], 70'000'000U) << done;
  EXPECT_LE(bytes_for("workspaces"), 20'000'000U);
  EXPECT_EQ(bash("sha256sum -c sum", {"--workspace", "w"}).out, "f: OK\n");
  EXPECT_THAT(said(asked({"prune"})), IsEmpty());
}

TEST_P(DiskUse, AgentsWorkspaceGoesWithItsFlow) {
  const json done = agent(kScript);
  ASSERT_EQ(last_.status, 0) << last_.err;
  const std::string id = done["execution"];
  EXPECT_THAT(workspaces(), ElementsAre("agent-" + id));
  EXPECT_GE(bytes_for("snapshots"), 3'000'000U);
  // It is what the execution would go on with.
  EXPECT_THAT(said(asked({"prune"})), IsEmpty());
  EXPECT_EQ(carrel({"flow", "rm", id}).status, 0);
  EXPECT_THAT(workspaces(), IsEmpty());
  EXPECT_LE(bytes_for("workspaces") + bytes_for("snapshots"), 100'000U);
}

TEST_P(DiskUse, NamedWorkspaceOfAnAgentStays) {
  const json done = agent(kScript, {"--workspace", "mine"});
  ASSERT_EQ(last_.status, 0) << last_.err;
  EXPECT_EQ(carrel({"flow", "rm", done["execution"]}).status, 0);
  EXPECT_THAT(workspaces(), ElementsAre("mine"));
}

// In its first moment, and after that.
TEST_P(DiskUse, FailedRunLeavesNothingIfNothingCameOfIt) {
  std::filesystem::create_directory(place().work(GetParam()) + "/project");
  file("project/a.txt", "x");
  const json failed = agent(kEmptyScript);
  EXPECT_EQ(last_.status, 1) << last_.out;
  EXPECT_TRUE(failed["execution"].is_null()) << failed;
  EXPECT_FALSE(failed["success"]);
  EXPECT_THAT(workspaces(), IsEmpty());
  EXPECT_THAT(asked({"flow", "ls"})["executions"], IsEmpty());
  // Before it is an execution.
  const Run early =
      carrel({"agent", "run", "--script", place().work(GetParam()) + "/script.toml", "--image",
              "none", "--workspace-from", place().work(GetParam()) + "/project", "do it"});
  EXPECT_EQ(early.status, 125);
  EXPECT_THAT(workspaces(), IsEmpty()) << early.err;
  // One that has a name is somebody's.
  agent(kEmptyScript, {"--execution", "mine"});
  EXPECT_EQ(last_.status, 1);
  EXPECT_THAT(workspaces(), ElementsAre("agent-mine"));
  EXPECT_EQ(carrel({"flow", "rm", "mine"}).status, 0);
  EXPECT_THAT(workspaces(), IsEmpty());
}

TEST_P(DiskUse, PruneRemovesWhatIsOldAndHasNoNameIfItIsTold) {
  const std::string flow = agent(kScript)["execution"];
  ASSERT_EQ(last_.status, 0) << last_.err;
  ASSERT_EQ(carrel({"run", "--workspace", "kept", "--", "sh", "-c", "echo a > f"}).status, 0);
  const std::string unnamed = asked({"snapshot", "kept"})["id"];
  ASSERT_EQ(carrel({"run", "--workspace", "kept", "--", "sh", "-c", "echo b > f"}).status, 0);
  const std::string named = asked({"snapshot", "--name", "good", "kept"})["id"];
  EXPECT_THAT(said(asked({"prune"})), IsEmpty());
  EXPECT_EQ(carrel({"prune", "--flows"}).status, 2) << "without an age";
  EXPECT_EQ(carrel({"prune", "--older-than", "1h"}).status, 2);
  EXPECT_THAT(said(asked({"prune", "--flows", "--snapshots", "--older-than", "1h"})), IsEmpty());

  const std::vector<std::string> all = {"prune", "--flows", "--snapshots", "--older-than", "1ms"};
  std::vector<std::string> dry = all;
  dry.emplace_back("--dry-run");
  EXPECT_THAT(said(asked(dry)), UnorderedElementsAre("flow " + flow, "snapshot " + unnamed));
  EXPECT_THAT(workspaces(), UnorderedElementsAre("agent-" + flow, "kept"));
  const json done = asked(all);
  EXPECT_THAT(said(done), UnorderedElementsAre("flow " + flow, "snapshot " + unnamed));
  EXPECT_GE(done["disk_bytes"], 2'000'000U) << done;
  EXPECT_THAT(workspaces(), ElementsAre("kept"));
  EXPECT_EQ(bash("cat f", {"--workspace", "kept"}).out, "b\n");
  EXPECT_EQ(carrel({"restore", "kept", named}).status, 0);
  EXPECT_NE(carrel({"restore", "kept", unnamed}).status, 0);
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

// Twenty copies, twenty agents of which ten fail, ten named workspaces of 10 MB, ten forks.
TEST_P(DiskUse, AnHourOfOrdinaryUseTakesWhatDfSaysAndNoMore) {
  constexpr char kSmall[] = R"(
[[turns]]
[[turns.replies]]
calls = [{name = "exec", arguments = {command = "head -c 100000 /dev/urandom > made"}}]
[[turns.replies]]
text = "Done."
)";
  const std::string project = place().work(GetParam()) + "/project";
  std::filesystem::create_directory(project);
  file("project/a.txt", "x");
  std::set<std::string> named;
  for (int i = 0; i < 10; ++i) {
    const std::string name = "named-" + std::to_string(i);
    ASSERT_EQ(bash("head -c 10000000 /dev/urandom > f", {"--workspace", name}).status, 0);
    named.insert(name);
    for (int twice = 0; twice < 2; ++twice) {
      ASSERT_EQ(bash("echo y >> a.txt", {"--workspace-from", project}).status, 0);
    }
    agent(kSmall);
    ASSERT_EQ(last_.status, 0) << last_.err;
    agent(kEmptyScript);
    ASSERT_EQ(last_.status, 1) << last_.out;
    const Run fork = carrel({"fork", "named-0"});
    ASSERT_EQ(fork.status, 0) << fork.err;
  }
  const auto on_disk = [&] {
    const std::string file = place().work(GetParam()) + "/du";
    const std::string look = "du -s -B1 " + place().home(GetParam()) + " > " + file;
    EXPECT_EQ(std::system(look.c_str()), 0);
    std::uint64_t bytes = 0;
    std::ifstream(file) >> bytes;
    return bytes;
  };
  EXPECT_LT(on_disk(), 200'000'000U) << carrel({"df"}).out << carrel({"workspace", "ls"}).out;
  // It is being used: databases and logs may grow between the looks.
  const auto as_df_says = [&] {
    return asked({"df"})["disk_bytes"].get<std::uint64_t>() + 1'000'000U;
  };
  EXPECT_LE(on_disk(), as_df_says());
  EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
  EXPECT_EQ(asked({"prune", "--flows", "--snapshots", "--older-than", "1ms"})["kept"],
            json::array());
  EXPECT_EQ(workspaces(), named);
  EXPECT_LE(on_disk(), as_df_says());
  for (const std::string& name : named) {
    EXPECT_EQ(carrel({"workspace", "rm", name}).status, 0);
  }
  EXPECT_LT(on_disk(), 5'000'000U) << carrel({"df"}).out;
}

}  // namespace
}  // namespace carrel::test
