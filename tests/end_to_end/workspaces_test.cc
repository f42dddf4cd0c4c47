// Workspaces: files that outlive the sandbox, their snapshots, what changed between them, and
// copies that go on by themselves.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/box.h"
#include "support/fixture.h"
#include "support/workspace_files.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Workspaces : public CarrelTest {
 protected:
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      for (const std::string& name : names()) {
        EXPECT_EQ(carrel({"workspace", "rm", name}).status, 0);
      }
      EXPECT_EQ(entries(place().home(GetParam()) + "/workspaces"), 0) << "something is left";
      EXPECT_EQ(entries(place().home(GetParam()) + "/layers"), 0) << "something is left";
    }
    CarrelTest::TearDown();
  }

  static std::ptrdiff_t entries(const std::string& directory) {
    return fs::exists(directory) ? std::distance(fs::directory_iterator(directory), {}) : 0;
  }
  // One line, the command's own.
  std::string says(std::vector<std::string> words) const {
    const Run run = carrel(std::move(words));
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  json object(std::vector<std::string> words) const {
    words.emplace_back("--json");
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out, nullptr, false);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    const json list = object({"workspace", "ls"});
    for (const json& one : list["workspaces"]) {
      found.push_back(one["name"]);
    }
    return found;
  }
  // A command that prepares something.
  static void does(const Box& box, const std::string& script) {
    const Run run = box.sh(script);
    EXPECT_EQ(run.status, 0) << script << "\n" << run.err;
  }
  void expect_whole() const {
    const Run run = carrel({"workspace", "fsck"});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  }
  Run in(const std::string& workspace, const std::string& script) const {
    return bash(script, {"--workspace", workspace});
  }
};
CARREL_AS_BOTH(Workspaces);

TEST_P(Workspaces, R52_AreListedUnderTheirName) {
  EXPECT_EQ(in("workspace_42", "pwd; echo x > f").out, "/workspace\n");
  EXPECT_EQ(names(), std::vector<std::string>{"workspace_42"});
}

TEST_P(Workspaces, R53_FilesSurviveTheSandboxAndItsEnd) {
  EXPECT_EQ(in("w", "echo one > a; mkdir d; chmod 750 d; id -u").out, "1000\n");
  const Box box(GetParam(), {"--workspace", "w"});
  EXPECT_EQ(box.sh("cat a; find d -printf '%m %u\\n'; echo two >> a").out, "one\n750 agent\n");
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_EQ(in("w", "cat a").out, "one\ntwo\n");
}

TEST_P(Workspaces, R55_NobodySeesAnothersFiles) {
  EXPECT_EQ(in("a", "echo secret > s").status, 0);
  EXPECT_EQ(in("b", "ls -A").out, "");
  EXPECT_EQ(bash("ls -A").out, "") << "the default one is new each time";
}

TEST_P(Workspaces, AreNotSharedUnlessBothAsk) {
  const Box box(GetParam(), {"--workspace", "w"});
  const Run refused = in("w", "true");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "has the workspace 'w'")) << refused.err;
  EXPECT_EQ(bash("true", {"--workspace", "w", "--share-workspace"}).status, 125);
  EXPECT_EQ(carrel({"create", "--workspace", "w"}).status, 125);
  const Box one(GetParam(), {"--workspace", "s", "--share-workspace"});
  const Box two(GetParam(), {"--workspace", "s", "--share-workspace"});
  EXPECT_EQ(one.sh("echo shared > f").status, 0);
  EXPECT_EQ(two.sh("cat f").out, "shared\n");
}

TEST_P(Workspaces, OneRunAtATimeHasOne) {
  Process running(launch({"run", "--workspace", "w", "--", "sh", "-c", "echo > here; sleep 30"}));
  ASSERT_TRUE(eventually(std::chrono::seconds(10), [&] {
    return fs::exists(WorkspaceFiles(GetParam(), "w").tree() + "/here");
  }));
  const Run refused = in("w", "true");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "the workspace 'w' is in use")) << refused.err;
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).status, 125);
  EXPECT_EQ(object({"workspace", "ls"})["workspaces"][0]["in_use_by"], "a run");
  EXPECT_TRUE(says_one_line(carrel({"snapshot", "w"}), "the workspace 'w' is in use"));
  running.send(SIGKILL);
  running.wait(std::chrono::seconds(5));
  EXPECT_EQ(in("w", "ls").out, "here\n");
}

TEST_P(Workspaces, R56_CanBeRemovedAndPruned) {
  in("old", "true");
  in("kept", "true");
  EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "1h"}).out, "");
  const Box box(GetParam(), {"--workspace", "kept"});
  const Run in_use = carrel({"workspace", "rm", "kept"});
  EXPECT_EQ(in_use.status, 125);
  EXPECT_TRUE(says_one_line(in_use, "is in use")) << in_use.err;
  ::usleep(20'000);
  EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "10ms"}).out, "old\n");
  EXPECT_EQ(names(), std::vector<std::string>{"kept"});
  EXPECT_TRUE(says_one_line(carrel({"workspace", "rm", "none"}), "Workspace none not found"));
}

TEST_P(Workspaces, R57_WhoMakesOneTooLargeIsEnded) {
  // Where it has a file system of its own, that holds more than this.
  ASSERT_EQ(bash("true", {"--workspace", "w", "--disk", "200m"}).status, 0);
  const std::vector<std::string> small = {"--workspace", "w", "--disk", "20m"};
  const Run full =
      bash("i=0; while :; do i=$((i + 1)); head -c 1M /dev/zero > f$i; sleep 0.05; done", small);
  EXPECT_EQ(full.status, 137);
  EXPECT_TRUE(says_one_line(full, "the workspace is full: its limit is 20 MiB")) << full.err;
  const Run cleaned = bash("ls | wc -l; rm -f f*; ls | wc -l", small);
  EXPECT_EQ(cleaned.status, 0) << "one may clean up: " << cleaned.err;
  EXPECT_LT(std::stoi(cleaned.out), 150);
  EXPECT_EQ(bash("head -c 50M /dev/zero > one", small).status, 128 + SIGXFSZ);
  const Run many = bash("for i in $(seq 100000); do > e$i; done; sleep 600", small);
  EXPECT_EQ(many.status, 137) << "the number of files counts, too";
  EXPECT_EQ(bash("find . -name 'e*' -delete; ls", small).out, "one\n");
  // What a command left behind is seen, too, and files without a name.
  const Box box(GetParam(), small);
  does(
      box,
      "rm -f *; (i=0; while :; do i=$((i + 1)); head -c 1M /dev/zero > g$i; sleep 0.02; done) & :");
  EXPECT_TRUE(
      eventually(std::chrono::seconds(15), [&] { return box.sh("pgrep -c sleep").out == "0\n"; }));
  does(box, "rm -f *");
  const json result = box.result(
      "python3 -c \"import os, time\nwhile True:\n try:\n"
      "  f = os.open('x', os.O_CREAT | os.O_WRONLY); os.unlink('x')\n"
      "  os.write(f, bytes(1 << 20))\n"
      " except OSError: pass\n time.sleep(0.03)\"");
  EXPECT_EQ(result["exit_code"], 137) << result;
  const json info = object({"info", box.id(), "--enforcement"});
  EXPECT_NE(info.dump().find("watchdog"), std::string::npos);
}

TEST_P(Workspaces, RequiredDiskLimitIsRefusedWhereOnlyAGuestWatches) {
  ASSERT_EQ(bash("true", {"--workspace", "w", "--disk", "200m"}).status, 0);
  const Run run = bash("true", {"--workspace", "w", "--disk", "20m", "--require", "disk"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "'disk' is required")) << run.err;
}

TEST_P(Workspaces, SnapshotCanBeShownAndRestored) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "echo one > a; mkdir d; echo x > d/y; ln -s a l");
  const std::string first = says({"snapshot", box.id(), "--name", "first"});
  does(box, "echo two >> a; rm -r d; rm l; ln -s b l; echo new > n");
  const json diff = object({"diff", box.id()});
  std::map<std::string, std::string> changes;
  for (const json& one : diff["changes"]) {
    changes[one["path"]] = one["change"];
  }
  EXPECT_EQ(changes, (std::map<std::string, std::string>{{"a", "modified"},
                                                         {"d", "deleted"},
                                                         {"d/y", "deleted"},
                                                         {"l", "modified"},
                                                         {"n", "added"}}));
  EXPECT_EQ(diff["changes"][0]["hunks"][0]["lines"], (json{" one\n", "+two\n"}));
  const std::string second = says({"snapshot", "w"});
  EXPECT_EQ(object({"diff", box.id()})["changes"].size(), 0U);
  EXPECT_EQ(says({"restore", box.id(), "first"}), first);
  EXPECT_EQ(box.sh("cat a d/y; readlink l; ls").out, "one\nx\na\na\nd\nl\n");
  EXPECT_EQ(object({"diff", "w", "--from", first, "--to", second})["changes"].size(), 5U);
  EXPECT_EQ(object({"workspace", "history", "w"})["snapshots"].size(), 2U);
  expect_whole();
}

TEST_P(Workspaces, ANameOfASnapshotIsOneOfItsWorkspace) {
  for (const char* name : {"a", "b"}) {
    in(name, std::string("echo ") + name + " > f");
    says({"snapshot", name, "--name", "first"});
    in(name, "echo changed > f");
  }
  EXPECT_EQ(object({"diff", "b", "--from", "first"})["changes"][0]["hunks"][0]["lines"],
            (json{"-b\n", "+changed\n"}));
  says({"restore", "b", "first"});
  EXPECT_EQ(in("b", "cat f").out, "b\n");
  EXPECT_EQ(in("a", "cat f").out, "changed\n");
  EXPECT_TRUE(says_one_line(carrel({"workspace", "forget", "first"}), "more than one snapshot"));
}

TEST_P(Workspaces, DiffIsReadByGit) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box,
       "printf 'x:\\n\\ttab\\xff\\n' > Makefile; printf 'a\\nb\\nc' > text; echo gone > gone; "
       "mkdir d; seq 100 > d/numbers");
  says({"snapshot", "w"});
  const std::string copy = place().home(GetParam()) + "/copy";
  const WorkspaceFiles files(GetParam(), "w");
  const std::string tree = files.tree();
  fs::copy(tree, copy, fs::copy_options::recursive);
  does(box,
       "printf 'x:\\n\\tother\\xff\\n' > Makefile; printf 'a\\nB\\nc\\n' > text; rm gone; sed -i "
       "'s/^50$/fifty/' d/numbers; echo n > d/new");
  const std::string patch = file("patch", carrel({"diff", "w"}).out);
  const std::string script = "cd " + copy + " && git apply --whitespace=nowarn " + patch +
                             " && diff -r " + tree + " " + copy;
  EXPECT_EQ(std::system(script.c_str()), 0) << carrel({"diff", "w"}).out;
  fs::remove_all(copy);
}

TEST_P(Workspaces, WorkloadStandsStillForASnapshot) {
  // Two files that always say the same, but for a moment. A snapshot between the two would show it.
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "echo 0 > a; echo 0 > b");
  const Run started = carrel({"exec", "--detach", box.id(), "--", "python3", "-c",
                              "import os\n"
                              "a, b = (os.open(n, os.O_WRONLY) for n in 'ab')\n"
                              "i = 0\n"
                              "while True:\n"
                              "  i += 1\n"
                              "  text = b'%09d\\n' % i\n"
                              "  os.pwrite(a, text, 0)\n"
                              "  os.pwrite(b, text, 0)\n"});
  ASSERT_EQ(started.status, 0) << started.err;
  for (int round = 0; round < 10; ++round) {
    const std::string id = says({"snapshot", "w"});
    const json whole = object({"workspace", "history", "w"});
    ASSERT_TRUE(whole.contains("snapshots") && !whole["snapshots"].empty()) << whole;
    EXPECT_GT(whole["snapshots"].back()["frozen_us"], 0) << whole;
    const std::string layers = place().home(GetParam()) + "/layers";
    long numbers[2] = {0, 0};
    for (const auto& layer : fs::directory_iterator(layers)) {
      for (int which = 0; which < 2; ++which) {
        std::ifstream one(layer.path().string() + "/tree/" + "ab"[which]);
        long number = 0;
        if (one >> number) {
          numbers[which] = std::max(numbers[which], number);
        }
      }
    }
    EXPECT_LE(numbers[0] - numbers[1], 1) << "round " << round;
    EXPECT_GE(numbers[0] - numbers[1], 0) << "round " << round;
  }
  EXPECT_EQ(box.sh("cat a | wc -l").out, "1\n") << "it goes on afterwards";
  EXPECT_EQ(box.exec({"pkill", "python3"}).status, 0);
}

// Whoever waits for a child that shares its memory cannot be stopped, and such a child is stopped
// before it executes its program.
TEST_P(Workspaces, WhoStartsProgramsAllTheTimeStandsStillForASnapshot) {
  const Box box(GetParam(), {"--workspace", "w"});
  const Run started =
      carrel({"exec", "--detach", box.id(), "--", "python3", "-c",
              "import os\n"
              "opened = [(os.POSIX_SPAWN_OPEN, 9, '/dev/null', os.O_RDONLY, 0)] * 3000\n"
              "while True:\n"
              "  child = os.posix_spawn('/bin/true', ['true'], {}, file_actions=opened)\n"
              "  os.waitpid(child, 0)\n"
              "  open('begun', 'a').write('x')\n"});
  ASSERT_EQ(started.status, 0) << started.err;
  ASSERT_TRUE(eventually(std::chrono::seconds(10),
                         [&] { return box.sh("cat begun 2> /dev/null").out != ""; }));
  for (int round = 0; round < 10; ++round) {
    does(box, "echo " + std::to_string(round) + " > round");
    says({"snapshot", "w"});
  }
  const std::string sofar = box.sh("cat begun").out;
  EXPECT_TRUE(eventually(std::chrono::seconds(10), [&] { return box.sh("cat begun").out > sofar; }))
      << "it goes on";
  EXPECT_EQ(box.exec({"pkill", "python3"}).status, 0);
}

// Nobody is told of such a write while the file is mapped.
TEST_P(Workspaces, WritesThroughAMappingAreInEverySnapshot) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "mkdir a b; echo x > a/x; head -c 4096 /dev/zero > b/m");
  says({"snapshot", "w"});
  does(box, "sleep 0.05; echo y > a/x");
  says({"snapshot", "w"});
  does(box,
       "python3 -c \"import mmap, os, time\n"
       "f = os.open('b/m', os.O_RDWR)\n"
       "m = mmap.mmap(f, 4096); os.close(f)\n"
       "for i in range(1, 5):\n"
       " while not os.path.exists('/tmp/%d' % i): time.sleep(0.01)\n"
       " m[0:1] = b'%d' % i; open('/tmp/done%d' % i, 'w')\n\" > /tmp/log 2>&1 & :");
  std::vector<std::string> ids;
  for (const char* round : {"1", "2", "3", "4"}) {
    const std::string n(round);
    does(box, "touch /tmp/" + n + "; while ! [ -e /tmp/done" + n + " ]; do sleep 0.01; done");
    ids.push_back(says({"snapshot", "w"}));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(says({"restore", "w", ids[i]}), ids[i]);
    EXPECT_EQ(box.sh("head -c 1 b/m").out, std::to_string(i + 1));
  }
}

// The keeper holds a watch over the tree between two snapshots, and lets it go with the sandbox.
TEST_P(Workspaces, AWatchIsKeptForAsLongAsTheSandboxLives) {
  const auto watches = [this] {
    std::ptrdiff_t found = 0;
    for (const auto& process : fs::directory_iterator("/proc")) {
      const std::string words = read_text(process.path() / "cmdline").value_or("");
      std::error_code ignored;
      if (words.find(std::string("keeper") + '\0') == std::string::npos ||
          !fs::equivalent(process.path() / "exe", place().program(), ignored)) {
        continue;
      }
      for (const auto& fd : fs::directory_iterator(process.path() / "fd", ignored)) {
        found += fs::read_symlink(fd, ignored) == "anon_inode:inotify" ? 1 : 0;
      }
    }
    return found;
  };
  // It is given to the keeper without waiting for an answer.
  const auto come_to = [&watches](std::ptrdiff_t wanted) {
    eventually(std::chrono::seconds(5), [&] { return watches() == wanted; });
    return watches();
  };
  Box box(GetParam(), {"--workspace", "w"});
  does(box, "mkdir a; echo x > a/x");
  EXPECT_EQ(watches(), 0);
  says({"snapshot", "w"});
  const bool own_disk =
      GetParam() == As::kRoot && fs::exists(place().home(GetParam()) + "/workspaces/w/disk");
  EXPECT_EQ(come_to(own_disk ? 0 : 1), own_disk ? 0 : 1);
  says({"snapshot", "w"});
  EXPECT_EQ(come_to(own_disk ? 0 : 1), own_disk ? 0 : 1);
  const Run forked = carrel({"fork", "w", "--workspace", "copy"});
  EXPECT_EQ(forked.status, 0) << forked.err;
  EXPECT_EQ(come_to(own_disk ? 0 : 1), own_disk ? 0 : 1) << "the last snapshot was enough";
  EXPECT_EQ(object({"workspace", "history", "w"})["snapshots"].size(), 2U);
  EXPECT_EQ(carrel({"rm", "--force", box.id()}).status, 0);
  EXPECT_EQ(come_to(0), 0);
}

TEST_P(Workspaces, StoppedProgramsStayStopped) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "sleep 600 & echo $! > pid; kill -STOP $!");
  says({"snapshot", "w"});
  EXPECT_EQ(box.sh("ps -o stat= -p $(cat pid) | cut -c1").out, "T\n");
  EXPECT_EQ(box.sh("echo alive").out, "alive\n");
}

// A process takes a stop when it runs next. One that waits for a child to execute a program
// (CLONE_VFORK) takes it when the child has ended, which is when it is continued for the first
// time.
TEST_P(Workspaces, ProgramsWhoseStopIsPendingAreStoppedAfterwards) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box,
       "cat > v.py <<'END'\n"
       "import ctypes, os, signal, time\n"
       "clone = 56 if os.uname().machine == 'x86_64' else 220\n"
       "signal.signal(signal.SIGCONT, lambda *_: os._exit(0))\n"
       "if ctypes.CDLL(None).syscall(clone, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:\n"
       "    open('child', 'w').write(str(os.getpid()))\n"
       "    while True: time.sleep(100)\n"
       "open('ran', 'w').close()\n"
       "time.sleep(600)\n"
       "END\n"
       "python3 v.py > /dev/null 2>&1 & echo $! > pid\n"
       "until [ -s child ]; do sleep 0.05; done; kill -STOP $(cat pid)");
  says({"snapshot", "w"});
  does(box, "kill -CONT $(cat child) 2> /dev/null; :");
  EXPECT_TRUE(eventually(std::chrono::seconds(10), [&] {
    return box.sh("ps -o stat= -p $(cat pid) | cut -c1").out == "T\n";
  })) << box.sh("ps -ef").out;
  EXPECT_EQ(box.sh("ls ran 2> /dev/null").out, "") << "somebody let it go on";
}

TEST_P(Workspaces, ForkGoesOnByItself) {
  const Box box(GetParam(), {"--workspace", "w", "--memory", "300m"});
  does(box, "echo one > a; mkdir d; echo x > d/y");
  const std::string fork = says({"fork", box.id(), "--workspace", "copy", "--name", "other"});
  EXPECT_EQ(
      carrel({"sh", fork, "cat a d/y; echo fork >> a; rm -r d; mkdir d; ls d; echo n > new"}).out,
      "one\nx\n");
  EXPECT_EQ(box.sh("cat a; ls").out, "one\na\nd\n");
  EXPECT_EQ(object({"info", "other"})["settings"]["memory"], "300m");
  json names = json::array();
  const json diff = object({"diff", "copy"});
  for (const json& one : diff["changes"]) {
    names.push_back(one["path"]);
  }
  EXPECT_EQ(names, (json{"a", "d/y", "new"}));
  const std::string second = says({"snapshot", "copy"});
  EXPECT_EQ(carrel({"sh", "other", "echo more >> a"}).status, 0);
  EXPECT_EQ(carrel({"rm", "--force", "other"}).status, 0);
  EXPECT_EQ(in("copy", "cat a; ls -A d").out, "one\nfork\nmore\n") << "it is kept, too";
  // What it stands on stays when the first is removed.
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).status, 0);
  expect_whole();
  EXPECT_EQ(says({"restore", "copy", second}), second);
  EXPECT_EQ(in("copy", "cat a new").out, "one\nfork\nn\n");
}

TEST_P(Workspaces, ForkCanBeginWithAnEarlierSnapshot) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "echo one > a");
  EXPECT_EQ(carrel({"snapshot", "w", "--name", "before"}).status, 0);
  does(box, "echo two > a; echo x > new");
  const std::string fork = says({"fork", "w", "--from", "before", "--workspace", "copy"});
  EXPECT_EQ(carrel({"sh", fork, "cat a; ls"}).out, "one\na\n");
  EXPECT_EQ(object({"workspace", "history", "w"})["snapshots"].size(), 1U) << "none was taken";
  EXPECT_EQ(carrel({"fork", "w", "--from", "nothing"}).status, 125);
}

TEST_P(Workspaces, WhatNobodyNamedGoesWithItsSandbox) {
  in("w", "echo x > f");
  const auto names = [&] {
    std::set<std::string> found;
    const json list = object({"workspace", "ls"});
    for (const json& one : list["workspaces"]) {
      found.insert(one["name"]);
    }
    return found;
  };
  const std::string fork = says({"fork", "w"});
  const std::string asked = says({"fork", "w"});
  EXPECT_EQ(carrel({"sh", asked, "echo y > g"}).status, 0);
  says({"snapshot", asked});
  const std::string named = says({"fork", "w", "--workspace", "copy"});
  EXPECT_EQ(names().size(), 4U);
  for (const std::string& id : {fork, asked, named}) {
    EXPECT_EQ(carrel({"rm", "--force", id}).status, 0);
  }
  const std::set<std::string> left = names();
  EXPECT_EQ(left.size(), 3U) << "a snapshot that was asked for is kept";
  EXPECT_TRUE(left.contains("w") && left.contains("copy"));
  expect_whole();
}

TEST_P(Workspaces, AnotherWorkspacesSnapshotHasToBeNamedWithIt) {
  in("a", "echo a > f");
  const std::string id = says({"snapshot", "a", "--name", "first"});
  in("b", "echo b > f");
  for (const std::string& named : {id, id.substr(0, 10), std::string("first")}) {
    const std::string none = "Snapshot " + named + " not found";
    EXPECT_TRUE(says_one_line(carrel({"diff", "b", "--from", named}), none));
    EXPECT_TRUE(says_one_line(carrel({"restore", "b", named}), none));
    EXPECT_TRUE(says_one_line(carrel({"fork", "b", "--from", named}), none));
    EXPECT_EQ(object({"diff", "b", "--from", "a/" + named})["changes"][0]["hunks"][0]["lines"],
              (json{"-a\n", "+b\n"}));
  }
  EXPECT_TRUE(says_one_line(carrel({"restore", "b", "c/first"}), "Workspace c not found"));
  EXPECT_EQ(in("b", "cat f").out, "b\n");
  const std::string fork = says({"fork", "b", "--from", "a/first"});
  EXPECT_EQ(carrel({"sh", fork, "cat f"}).out, "a\n");
  EXPECT_EQ(says({"restore", "b", "a/first"}), id);
  EXPECT_EQ(in("b", "cat f").out, "a\n");
  EXPECT_EQ(carrel({"workspace", "rm", "a"}).status, 0);
  expect_whole();
}

// An overlay takes a limited number of layers.
TEST_P(Workspaces, AnyNumberOfSnapshotsCanBeForkedAndRestored) {
  constexpr int kSnapshots = 200;
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "mkdir d; for i in $(seq 50); do echo $i > d/$i; done");
  const auto looks = [](int i) {
    return std::to_string(i) + "\n" + (i % 4 == 3 ? "" : std::to_string(i - i % 4) + "\n") + "50\n";
  };
  const std::string look = "cat now; cat come/and-go 2>&-; find d -type f | wc -l";
  std::vector<std::string> ids;
  for (int i = 0; i < kSnapshots; ++i) {
    does(box, "echo " + std::to_string(i) + " > now; case " + std::to_string(i % 4) +
                  " in 0) mkdir come; cp now come/and-go;; 3) rm -r come;; esac");
    ids.push_back(says({"snapshot", "w"}));
  }
  expect_whole();
  for (const int which : {0, kSnapshots / 2 + 1, kSnapshots - 2, kSnapshots - 1}) {
    const std::string& id = ids[static_cast<std::size_t>(which)];
    const std::string fork = says({"fork", "w", "--from", id});
    EXPECT_EQ(carrel({"sh", fork, look}).out, looks(which));
    EXPECT_EQ(carrel({"sh", fork, "rm -rf come d; echo fork > now"}).status, 0);
    EXPECT_EQ(carrel({"rm", "--force", fork}).status, 0);
    EXPECT_EQ(says({"restore", "w", id}), id);
    EXPECT_EQ(box.sh(look).out, looks(which));
  }
  const std::string last = says({"fork", "w"});
  EXPECT_EQ(carrel({"sh", last, look}).out, looks(kSnapshots - 1));
  expect_whole();
}

TEST_P(Workspaces, UnreadableFilesAreInASnapshot) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "mkdir -p closed/in; echo x > closed/in/f; chmod 000 closed/in/f closed/in closed");
  const std::string id = says({"snapshot", "w"});
  does(box, "chmod 700 closed; rm -rf closed; chmod -R 700 closed; rm -rf closed");
  EXPECT_EQ(says({"restore", "w", id}), id);
  EXPECT_EQ(box.sh("find closed -prune -printf '%m\\n'; chmod 700 closed closed/in; "
                   "find closed/in/f -printf '%m\\n'")
                .out,
            "0\n0\n");
  expect_whole();
}

TEST_P(Workspaces, HostileNamesAndLinksAreData) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box,
       "ln -s /etc/shadow s; ln -s ../../../../.. up; touch $'a\\nb' $'\\e[31m' -- '-rf' ' '; "
       "mkfifo p; ln -s p/../../x q; python3 -c \"import socket; "
       "socket.socket(socket.AF_UNIX).bind('sock')\"");
  const std::string id = says({"snapshot", "w"});
  const Run diff = carrel({"diff", "w", "--from", id});
  EXPECT_EQ(diff.status, 0) << diff.err;
  does(box, "rm -rf -- * ' '; ls -A");
  const Run shown = carrel({"diff", "w"});
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos) << "a terminal would obey it";
  EXPECT_EQ(says({"restore", "w", id}), id);
  EXPECT_EQ(box.sh("readlink s up; find . -mindepth 1 -printf x").out,
            "/etc/shadow\n../../../../..\nxxxxxxxx")
      << "all but the socket";
  expect_whole();
}

TEST_P(Workspaces, AttributesOfUsersAreKept) {
  const Box box(GetParam(), {"--workspace", "w"});
  const auto set = [&](const std::string& path, const std::string& value) {
    does(box,
         "python3 -c \"import os; os.setxattr('" + path + "', 'user.color', b'" + value + "')\"");
  };
  const auto get = [](const std::string& path) {
    return "python3 -c \"import os; print(os.getxattr('" + path + "', 'user.color').decode())\"";
  };
  does(box, "echo x > f; chmod 400 f; mkdir d; echo y > d/g; chmod 600 f");
  set("f", "red");
  set("d", "green");
  does(box, "chmod 400 f");
  const std::string id = says({"snapshot", "w"});
  does(box, "chmod 600 f");
  set("f", "blue");
  does(box, "chmod 400 f");
  EXPECT_EQ(carrel({"diff", "w"}).out, "attributes of f: user.color=red -> user.color=blue\n");
  const json change = object({"diff", "w"})["changes"][0];
  EXPECT_EQ(change["before"]["attributes"], "user.color=red") << change;
  const std::string fork = says({"fork", "w"});
  EXPECT_EQ(carrel({"sh", fork, get("f") + "; " + get("d")}).out, "blue\ngreen\n");
  EXPECT_EQ(says({"restore", "w", id}), id);
  EXPECT_EQ(box.sh(get("f") + "; " + get("d")).out, "red\ngreen\n");
  EXPECT_EQ(carrel({"diff", "w"}).out, "");
  expect_whole();
}

// In a layer such an attribute would hide what lies below it.
TEST_P(Workspaces, AttributesOfOverlaysAreNotTheWorkloads) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "mkdir d; echo x > d/old");
  says({"snapshot", "w"});
  does(box,
       "echo y > d/new; python3 -c \"import os; os.setxattr('d', 'user.overlay.opaque', b'y')\"");
  const std::string fork = says({"fork", "w"});
  EXPECT_EQ(carrel({"sh", fork, "ls d"}).out, "new\nold\n");
}

TEST_P(Workspaces, DamageIsFound) {
  const Box box(GetParam(), {"--workspace", "w"});
  does(box, "echo one > a");
  const std::string id = says({"snapshot", "w"});
  does(box, "echo two > a");
  for (const auto& layer : fs::directory_iterator(place().home(GetParam()) + "/layers")) {
    std::ofstream(layer.path() / "tree/a", std::ios::trunc) << "bad";
  }
  const Run checked = carrel({"workspace", "fsck"});
  EXPECT_EQ(checked.status, 1);
  EXPECT_NE(checked.err.find("'a' has changed"), std::string::npos) << checked.err;
  const Run restored = carrel({"restore", "w", id});
  EXPECT_NE(restored.status, 0);
  EXPECT_TRUE(says_one_line(restored, "is damaged")) << restored.err;
  EXPECT_EQ(box.sh("cat a").out, "two\n");
}

TEST_P(Workspaces, WrongUseIsOneClearLine) {
  EXPECT_TRUE(says_one_line(carrel({"snapshot", "nothing"}), "no sandbox and no workspace"));
  EXPECT_TRUE(says_one_line(bash("true", {"--workspace", "../x"}), "--workspace"));
  in("w", "true");
  EXPECT_TRUE(says_one_line(carrel({"restore", "w", "nothing"}), "Snapshot nothing not found"));
  EXPECT_TRUE(says_one_line(carrel({"workspace", "frobnicate"}), "unknown action"));
  EXPECT_TRUE(says_one_line(carrel({"workspace", "prune"}), "--older-than"));
  const std::string id = says({"snapshot", "w", "--name", "n"});
  EXPECT_TRUE(says_one_line(carrel({"snapshot", "w", "--name", "n"}), "already has a snapshot"));
  EXPECT_TRUE(says_one_line(carrel({"fork", "w", "--workspace", "w"}), "already a workspace"));
}

TEST_P(Workspaces, CodeRunsInOne) {
  const Run run = python("open('made', 'w').write('x'); print(__file__)", {"--workspace", "w"});
  EXPECT_EQ(run.out, "/tmp/code\n") << run.err;
  EXPECT_EQ(in("w", "ls").out, "made\n");
}

// Ids begin with a hexadecimal digit: one of them is also the name of a workspace here.
TEST_P(Workspaces, ANameIsMeantBeforeTheBeginningOfAnId) {
  const Box box(GetParam(), {"--workspace", "other"});
  const std::string name = box.id().substr(0, 1);
  ASSERT_EQ(bash("echo mine > file", {"--workspace", name}).status, 0);
  const Run snapshot = carrel({"snapshot", name});
  ASSERT_EQ(snapshot.status, 0) << snapshot.err;
  EXPECT_NE(carrel({"workspace", "history", name})
                .out.find(snapshot.out.substr(0, snapshot.out.find('\n'))),
            std::string::npos);
  EXPECT_EQ(box.sh("ls").out, "");
}

}  // namespace
}  // namespace carrel::test
