// kill -9 of what changes workspaces, at random moments. CARREL_SEED repeats a run, CARREL_KILLS
// sets how many there are of each.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "remains.h"
#include "storage/workspaces/flatten.h"
#include "support/box.h"
#include "support/fixture.h"
#include "trees.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr unsigned long kKills = 12;
// Files of several kinds and sizes, all of which say the number; some come and go with it.
constexpr char kScenery[] = R"(
set -e
rm -rf -- * .hidden
mkdir -p deep/er/est empty some "$1"
for i in $(seq 40); do echo "$1 $i" > "some/$i"; done
head -c 300000 /dev/zero | tr '\0' "$1" > large
echo "$1" > deep/er/est/f; ln deep/er/est/f "twin$1"; ln -s "large$1" link; echo x > .hidden
chmod 7$1 empty; chmod 600 some/7
)";
// What a sandbox sees of its workspace.
constexpr char kLook[] =
    "cd /workspace; find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; "
    "find . -type f -print0 | sort -z | xargs -0 sha256sum";

class WorkspaceKill : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    seed_ = number_from("CARREL_SEED", std::random_device{}());
    random_.seed(seed_);
  }

  unsigned long pick(unsigned long below) { return random_() % below; }

  // A command that has to succeed, and its first line.
  std::string says(const std::vector<std::string>& words) const {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  static void paint(const Box& box, unsigned long number) {
    const Run run = box.exec({"bash", "-c", kScenery, "bash", std::to_string(number)});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  static std::string look(const Box& box) { return box.exec({"bash", "-c", kLook}).out; }

  // Starts it, kills it some time before it would have been ready, or just after, and returns what
  // it had said by then. `took` is how long it takes.
  Run kill_at_random(const std::vector<std::string>& words, std::chrono::milliseconds took) {
    const auto most = static_cast<unsigned long>(std::max<long>(took.count(), 10)) * 1200;
    const auto after = static_cast<useconds_t>(pick(most));
    what_ = "seed " + std::to_string(seed_) + ": " + words[0] + " killed after " +
            std::to_string(after) + " us of about " + std::to_string(took.count()) + " ms";
    Process process(launch(words));
    ::usleep(after);
    process.send(SIGKILL);
    return process.wait(seconds(10));
  }

  void expect_whole(const Box* box) const {
    if (box != nullptr) {
      const Run answer = box->sh("echo awake", {}, {.timeout_seconds = 8});
      ASSERT_EQ(answer.out, "awake\n") << what_ << ": it stands still; " << answer.err;
    }
    ASSERT_EQ(lasting_wrong_with_workspaces(GetParam()), "") << what_;
  }

  std::vector<std::string> workspaces() const {
    std::vector<std::string> names;
    const Run told = carrel({"workspace", "ls", "--json"});
    EXPECT_EQ(told.status, 0) << what_ << ": " << told.err;
    const json list = json::parse(told.out, nullptr, false);
    for (const json& one : list.value("workspaces", json::array())) {
      names.push_back(one["name"]);
    }
    return names;
  }
  bool is_listed(const std::string& name) const {
    const std::vector<std::string> names = workspaces();
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  std::vector<std::string> history(const std::string& workspace) const {
    std::vector<std::string> ids;
    const Run told = carrel({"workspace", "history", workspace, "--json"});
    EXPECT_EQ(told.status, 0) << what_ << ": " << told.err;
    const json list = json::parse(told.out, nullptr, false);
    for (const json& one : list.value("snapshots", json::array())) {
      ids.push_back(one["id"]);
    }
    return ids;
  }
  // Sandboxes that a killed command has made in spite of it.
  void remove_others(const std::string& kept) const {
    ASSERT_EQ(lasting_inconsistencies(GetParam()), "") << what_;
    for (const std::string& id : live_boxes(GetParam())) {
      if (id != kept) {
        EXPECT_EQ(carrel({"rm", "--force", id}).status, 0) << what_;
      }
    }
  }

  const unsigned long rounds_ = number_from("CARREL_KILLS", kKills);
  std::string what_;

 private:
  unsigned long seed_ = 0;
  std::mt19937_64 random_;
};
CARREL_AS_BOTH(WorkspaceKill);

TEST_P(WorkspaceKill, ASnapshotIsThereOrNotAndItsWorkspaceIsAsItWas) {
  const Box box(GetParam(), {"--workspace", "w"});
  paint(box, 0);
  const Run whole = carrel({"snapshot", "w"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  for (unsigned long round = 0; round < rounds_; ++round) {
    paint(box, round % 8);
    const std::string before = tree_of(GetParam(), "w");
    const std::vector<std::string> known = history("w");
    const Run killed = kill_at_random({"snapshot", "w"}, whole.duration);
    ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
    ASSERT_EQ(tree_of(GetParam(), "w"), before) << what_;
    const std::vector<std::string> now = history("w");
    ASSERT_LE(now.size(), known.size() + 1) << what_;
    if (killed.out.ends_with('\n')) {
      ASSERT_EQ(now.back() + "\n", killed.out) << what_ << ": it was told";
    }
    if (now.size() > known.size()) {
      ASSERT_EQ(carrel({"diff", "w", "--names"}).out, "") << what_;
    }
  }
  // Each of them is a moment that was.
  for (const std::string& id : history("w")) {
    ASSERT_EQ(says({"restore", "w", id}), id);
    const Run same = box.sh("cat some/* | cut -c1 | sort -u | wc -l; cat deep/er/est/f");
    ASSERT_EQ(same.out.substr(0, 2), "1\n") << what_ << ": " << id << " is a mixture";
  }
}

// Each of the snapshots that are killed makes the layers of those before it into one.
TEST_P(WorkspaceKill, AStackThatIsFlattenedIsWholeBeforeAndAfter) {
  const Box box(GetParam(), {"--workspace", "w"});
  ASSERT_NE(box.id(), "");
  std::map<std::string, std::string> moments;
  int number = 0;
  const auto change = [&] {
    ++number;
    const std::string script = "mkdir -p d; rm -f d/$(($1 - 5)); echo $1 | tee now > d/$1";
    EXPECT_EQ(box.exec({"bash", "-c", script, "bash", std::to_string(number)}).status, 0);
  };
  const auto layers = [&] {
    const json list =
        json::parse(carrel({"workspace", "history", "w", "--json"}).out, nullptr, false);
    return list["snapshots"].back().value("layers", std::size_t{0});
  };
  for (unsigned long round = 0; round < rounds_; ++round) {
    std::chrono::milliseconds took{0};
    do {
      change();
      const Run taken = carrel({"snapshot", "w"});
      ASSERT_EQ(taken.status, 0) << taken.err;
      moments[taken.out.substr(0, taken.out.find('\n'))] = std::to_string(number);
      took = taken.duration;
    } while (layers() < storage::kMostLayers);
    change();
    const std::vector<std::string> known = history("w");
    kill_at_random({"snapshot", "w"}, took * 2);
    ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
    const std::vector<std::string> now = history("w");
    if (now.size() > known.size()) {
      moments[now.back()] = std::to_string(number);
    }
  }
  for (std::size_t i = 0; i < 6; ++i) {
    const auto& [id, seen] = *std::next(moments.begin(), static_cast<long>(pick(moments.size())));
    ASSERT_EQ(says({"restore", "w", id}), id);
    ASSERT_EQ(box.sh("cat now; ls d | wc -l").out.substr(0, seen.size() + 1), seen + "\n") << what_;
  }
}

TEST_P(WorkspaceKill, ARestoreIsTheOldTreeOrTheNew) {
  const Box box(GetParam(), {"--workspace", "w"});
  std::vector<std::string> ids;
  std::vector<std::string> trees;
  for (unsigned long number : {3UL, 5UL}) {
    paint(box, number);
    ids.push_back(says({"snapshot", "w"}));
    trees.push_back(tree_of(GetParam(), "w"));
  }
  const Run whole = carrel({"restore", "w", ids[0]});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(tree_of(GetParam(), "w"), trees[0]);
  std::size_t now = 0;
  for (unsigned long round = 0; round < rounds_; ++round) {
    const std::size_t next = 1 - now;
    const Run killed = kill_at_random({"restore", "w", ids[next]}, whole.duration);
    // Whoever opens the workspace next brings it to an end.
    ASSERT_EQ(carrel({"diff", "w", "--names"}).status, 0) << what_;
    ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
    const std::string tree = tree_of(GetParam(), "w");
    ASSERT_TRUE(tree == trees[now] || tree == trees[next]) << what_ << "\n" << tree;
    ASSERT_TRUE(tree == trees[next] || !killed.out.ends_with('\n')) << what_ << ": it was told";
    now = tree == trees[next] ? next : now;
  }
}

// Where both do not fit beside each other: the old files go before the new ones come.
TEST_P(WorkspaceKill, ARestoreWithoutRoomForBothIsTheOldTreeOrTheNew) {
  if (!as_root()) {
    GTEST_SKIP() << "an ordinary user's workspace has no file system of its own";
  }
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m", "--require", "disk"});
  std::vector<std::string> ids;
  std::vector<std::string> trees;
  for (unsigned long number : {3UL, 5UL}) {
    paint(box, number);
    const Run filled = box.sh("head -c 14M /dev/urandom > filler; ln -s filler to$RANDOM");
    ASSERT_EQ(filled.status, 0) << filled.err;
    ids.push_back(says({"snapshot", "w"}));
    trees.push_back(tree_of(GetParam(), "w"));
  }
  const Run whole = carrel({"restore", "w", ids[0]});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(tree_of(GetParam(), "w"), trees[0]);
  std::size_t now = 0;
  for (unsigned long round = 0; round < rounds_; ++round) {
    const std::size_t next = 1 - now;
    kill_at_random({"restore", "w", ids[next]}, whole.duration);
    ASSERT_EQ(carrel({"diff", "w", "--names"}).status, 0) << what_;
    ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
    const std::string tree = tree_of(GetParam(), "w");
    ASSERT_TRUE(tree == trees[now] || tree == trees[next]) << what_ << "\n" << tree;
    now = tree == trees[next] ? next : now;
  }
}

// The same without a sandbox in it: the next one finds it whole.
TEST_P(WorkspaceKill, TheNextSandboxFindsARestoreFinished) {
  std::vector<std::string> ids;
  std::vector<std::string> seen;
  std::chrono::milliseconds took{0};
  {
    const Box box(GetParam(), {"--workspace", "w"});
    for (unsigned long number : {3UL, 5UL}) {
      paint(box, number);
      ids.push_back(says({"snapshot", "w"}));
      seen.push_back(look(box));
    }
    EXPECT_EQ(box.remove({"--force"}).status, 0);
    took = carrel({"restore", "w", ids[1]}).duration;
  }
  for (unsigned long round = 0; round < rounds_; ++round) {
    kill_at_random({"restore", "w", ids[round % 2]}, took);
    const Run next = bash(kLook, {"--workspace", "w"});
    ASSERT_TRUE(next.out == seen[0] || next.out == seen[1]) << what_ << "\n"
                                                            << next.out << next.err;
    ASSERT_NO_FATAL_FAILURE(expect_whole(nullptr));
  }
}

TEST_P(WorkspaceKill, AForkIsThereOrNotAndHoldsWhatItsOriginHeld) {
  const Box box(GetParam(), {"--workspace", "w"});
  paint(box, 2);
  const std::string before = tree_of(GetParam(), "w");
  const std::string seen = look(box);
  const Run whole = carrel({"fork", "w", "--workspace", "first"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  remove_others(box.id());
  for (unsigned long round = 0; round < rounds_; ++round) {
    const std::string name = "f" + std::to_string(round);
    const Run killed = kill_at_random({"fork", "w", "--workspace", name}, whole.duration);
    ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
    ASSERT_EQ(tree_of(GetParam(), "w"), before) << what_;
    if (killed.out.ends_with('\n')) {
      ASSERT_EQ(carrel({"sh", killed.out.substr(0, 36), "echo ok"}).out, "ok\n") << what_;
    }
    ASSERT_NO_FATAL_FAILURE(remove_others(box.id()));
    if (is_listed(name)) {
      ASSERT_EQ(bash(kLook, {"--workspace", name}).out, seen) << what_;
      ASSERT_EQ(says({"workspace", "rm", name}), name) << what_;
    }
  }
  EXPECT_EQ(says({"workspace", "rm", "first"}), "first");
  ASSERT_NO_FATAL_FAILURE(expect_whole(&box));
}

TEST_P(WorkspaceKill, AWorkspaceIsRemovedOrAllOfItIsThere) {
  std::chrono::milliseconds took{0};
  for (unsigned long round = 0; round <= rounds_; ++round) {
    {
      const Box box(GetParam(), {"--workspace", "w"});
      paint(box, 1);
      says({"snapshot", "w"});
      paint(box, 6);
      says({"snapshot", "w"});
      EXPECT_EQ(box.remove({"--force"}).status, 0);
    }
    const std::string before = tree_of(GetParam(), "w");
    if (round == 0) {
      took = carrel({"workspace", "rm", "w"}).duration;
      continue;
    }
    const Run killed = kill_at_random({"workspace", "rm", "w"}, took);
    // What it had committed could come to light between two looks. The next write decides that.
    ASSERT_EQ(bash("true", {"--workspace", "other"}).status, 0);
    ASSERT_NO_FATAL_FAILURE(expect_whole(nullptr));
    const bool there = is_listed("w");
    ASSERT_FALSE(there && killed.out.ends_with('\n')) << what_ << ": it was told";
    if (there) {
      ASSERT_EQ(tree_of(GetParam(), "w"), before) << what_;
      ASSERT_EQ(history("w").size(), 2U) << what_;
      ASSERT_EQ(says({"workspace", "rm", "w"}), "w") << what_;
    }
    ASSERT_EQ(lasting_wrong_with_workspaces(GetParam()), "") << what_;
  }
}

TEST_P(WorkspaceKill, ACreateLeavesItsWorkspaceFreeAndAsItWas) {
  ASSERT_EQ(bash("echo mine > f", {"--workspace", "old"}).status, 0);
  const std::string before = tree_of(GetParam(), "old");
  const Run whole = carrel({"create", "--workspace", "first"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  for (unsigned long round = 0; round < rounds_; ++round) {
    const std::string name = round % 2 == 0 ? "old" : "new" + std::to_string(round);
    const Run killed = kill_at_random({"create", "--workspace", name}, whole.duration);
    ASSERT_NO_FATAL_FAILURE(expect_whole(nullptr));
    if (killed.out.ends_with('\n')) {
      ASSERT_EQ(carrel({"sh", killed.out.substr(0, 36), "echo ok"}).out, "ok\n") << what_;
    }
    ASSERT_NO_FATAL_FAILURE(remove_others(whole.out.substr(0, 36)));
    ASSERT_EQ(tree_of(GetParam(), "old"), before) << what_;
    const Run used = bash("ls", {"--workspace", name});
    ASSERT_EQ(used.out, name == "old" ? "f\n" : "") << what_ << ": " << used.err;
  }
}

// An empty workspace that counts as a copy would say that everything in the directory was removed.
TEST_P(WorkspaceKill, ACopyOfADirectoryIsNotThereOrIsWhole) {
  const std::string source = place().work(GetParam()) + "/project";
  std::filesystem::create_directories(source + "/d");
  for (int i = 0; i < 200; ++i) {
    write_text(source + "/d/" + std::to_string(i), std::string(5000, 'x'));
    place().give(source + "/d/" + std::to_string(i), GetParam());
  }
  place().give(source, GetParam());
  place().give(source + "/d", GetParam());
  const std::vector<std::string> words = {"run", "--workspace-from", source, "--workspace"};
  const auto with = [&](const std::string& name) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {name, "--", "true"});
    return all;
  };
  const Run whole = carrel(with("first"));
  ASSERT_EQ(whole.status, 0) << whole.err;
  for (unsigned long round = 0; round < rounds_; ++round) {
    const std::string name = "copy" + std::to_string(round);
    kill_at_random(with(name), whole.duration);
    ASSERT_NO_FATAL_FAILURE(expect_whole(nullptr));
    if (is_listed(name)) {
      const Run applied = carrel({"apply", "--yes", name});
      ASSERT_EQ(applied.out, "") << what_ << ": nothing has changed";
      ASSERT_TRUE(std::filesystem::exists(source + "/d/199")) << what_;
      ASSERT_TRUE(applied.status != 0 ||
                  bash("find d -type f | wc -l", {"--workspace", name}).out == "200\n")
          << what_;
    }
  }
}

}  // namespace
}  // namespace carrel::test
