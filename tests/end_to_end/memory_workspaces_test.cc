// Snapshots of a sandbox that has its /workspace in memory: they outlive it.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class MemoryWorkspaces : public CarrelTest {
 protected:
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "1ms"}).status, 0);
      EXPECT_TRUE(fs::is_empty(place().home(GetParam()) + "/workspaces"));
      EXPECT_TRUE(fs::is_empty(place().home(GetParam()) + "/layers"));
    }
    CarrelTest::TearDown();
  }
  std::string says(const std::vector<std::string>& words) const {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  static void does(const Box& box, const std::string& script) {
    const Run run = box.sh(script);
    EXPECT_EQ(run.status, 0) << script << "\n" << run.err;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    const json list = json::parse(carrel({"workspace", "ls", "--json"}).out, nullptr, false);
    for (const json& one : list["workspaces"]) {
      found.push_back(one["name"]);
    }
    return found;
  }
};
CARREL_AS_BOTH(MemoryWorkspaces);

constexpr char kTree[] = "find . -mindepth 1 -printf '%p %y %m %n %l %U\\n' | sort; cat d/f";

TEST_P(MemoryWorkspaces, SnapshotIsShownRestoredAndForked) {
  const Box box(GetParam());
  does(box, "mkdir -m 750 d; echo one > d/f; ln d/f twin; ln -s twin link; mkfifo -m 600 p");
  const std::string tree = box.sh(kTree).out;
  const std::string first = says({"snapshot", box.id(), "--name", "first"});
  EXPECT_EQ(carrel({"diff", box.id(), "--names"}).out, "");
  does(box, "echo two > d/f; rm twin link p; mkdir new; echo x > new/x; chmod 700 d");
  EXPECT_EQ(carrel({"diff", box.id(), "--names"}).out,
            "M  d\nM  d/f\nD  link\nA  new\nA  new/x\nD  p\nD  twin\n");
  EXPECT_NE(carrel({"diff", box.id()}).out.find("-one\n+two\n"), std::string::npos);
  EXPECT_EQ(says({"restore", box.id(), "first"}), first);
  EXPECT_EQ(box.sh(kTree).out, tree);
  EXPECT_EQ(box.sh("echo mine >> d/f; cat twin; rm -r d && ls -A").out,
            "one\nmine\nlink\np\ntwin\n")
      << "what was restored is the sandbox's own";
  EXPECT_EQ(says({"restore", box.id(), "first"}), first);
  const std::string fork = says({"fork", box.id()});
  EXPECT_EQ(carrel({"sh", fork, "cat d/f; echo other > d/f"}).out, "one\n");
  EXPECT_EQ(box.sh("cat d/f").out, "one\n");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

TEST_P(MemoryWorkspaces, SnapshotsOutliveTheSandbox) {
  std::string name;
  {
    const Box box(GetParam());
    does(box, "echo one > f");
    says({"snapshot", box.id()});
    does(box, "echo two > f; mkdir d");
    says({"snapshot", box.id()});
    does(box, "echo lost > f");
    ASSERT_EQ(names().size(), 1U);
    name = names().front();
    EXPECT_TRUE(box.id().starts_with(name.substr(8))) << name;
    const Run taken = bash("true", {"--workspace", name});
    EXPECT_TRUE(says_one_line(taken, "in its memory")) << taken.err;
    EXPECT_TRUE(says_one_line(carrel({"workspace", "rm", name}), "is in use by"));
    EXPECT_EQ(carrel({"diff", name, "--names"}).out, "M  f\n") << "by either name";
    EXPECT_EQ(box.remove({"--force"}).status, 0);
  }
  EXPECT_EQ(names(), std::vector<std::string>{name});
  EXPECT_EQ(bash("cat f; ls", {"--workspace", name}).out, "two\nd\nf\n");
  EXPECT_EQ(carrel({"diff", name, "--names"}).out, "");
}

TEST_P(MemoryWorkspaces, OneThatNeverHadASnapshotLeavesNothing) {
  const Box box(GetParam());
  does(box, "echo one > f");
  EXPECT_EQ(carrel({"diff", box.id(), "--names"}).out, "A  f\n");
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_TRUE(names().empty());
}

// In memory such a write changes no time.
TEST_P(MemoryWorkspaces, WritesThroughAMappingAreSeen) {
  const Box box(GetParam());
  does(box,
       "python3 -c \"import mmap, os, time\n"
       "f = os.open('m', os.O_RDWR | os.O_CREAT); os.write(f, b'0' * 4096)\n"
       "m = mmap.mmap(f, 4096)\n"
       "for i in range(1, 4):\n"
       " while not os.path.exists('/tmp/%d' % i): time.sleep(0.01)\n"
       " m[0:1] = b'%d' % i; open('/tmp/done%d' % i, 'w')\n\" > /tmp/log 2>&1 & :");
  std::vector<std::string> ids;
  for (const char* round : {"1", "2", "3"}) {
    const std::string n(round);
    does(box, "touch /tmp/" + n + "; while ! [ -e /tmp/done" + n + " ]; do sleep 0.01; done");
    ids.push_back(says({"snapshot", box.id()}));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(says({"restore", box.id(), ids[i]}), ids[i]);
    EXPECT_EQ(box.sh("head -c 1 m").out, std::to_string(i + 1));
  }
}

TEST_P(MemoryWorkspaces, UnreadableAndHostileFilesAreFiles) {
  const Box box(GetParam());
  does(box,
       "mkdir -p closed/in; echo x > closed/in/f; chmod 000 closed/in/f closed/in closed; "
       "ln -s /etc/shadow s; ln -s ../../../../.. up; touch -- '-rf' $'a\\nb'; "
       "mkdir .carrel-restore; echo y > .carrel-restore/y");
  const std::string id = says({"snapshot", box.id()});
  does(box, "chmod 700 closed; chmod 700 closed/in; rm -rf -- closed s up '-rf' *");
  EXPECT_EQ(says({"restore", box.id(), id}), id);
  EXPECT_EQ(
      box.sh("stat -c %a closed; chmod 700 closed; stat -c %a closed/in; readlink s up; ls -A "
             "| wc -l")
          .out,
      "0\n0\n/etc/shadow\n../../../../..\n6\n")
      << "one name is the restore's own, and one has a line break";
}

TEST_P(MemoryWorkspaces, AFullOneCanBeRestored) {
  const Box box(GetParam(), {"--disk", "16m"});
  does(box, "head -c 12M /dev/urandom > one; sha256sum one > /tmp/sum");
  const std::string id = says({"snapshot", box.id()});
  does(box, "rm one; head -c 12M /dev/urandom > two");
  EXPECT_EQ(says({"restore", box.id(), id}), id);
  EXPECT_EQ(box.sh("sha256sum -c /tmp/sum; ls -A").out, "one: OK\none\n");
}

TEST_P(MemoryWorkspaces, AKilledRestoreIsFinishedByTheNextCommand) {
  const Box box(GetParam());
  const auto paint = [&](const std::string& word) {
    does(box, "rm -rf *; for i in $(seq 200); do echo " + word + " > $i; done");
    return says({"snapshot", box.id()});
  };
  const std::vector<std::string> ids = {paint("a"), paint("b")};
  for (unsigned round = 0; round < 12; ++round) {
    Process process(launch({"restore", box.id(), ids[round % 2]}));
    ::usleep(4'000 * (round + 1));
    process.send(SIGKILL);
    process.wait(std::chrono::seconds(10));
    ASSERT_EQ(carrel({"diff", box.id(), "--names"}).status, 0);
    const Run seen = box.sh("cat * | sort | uniq -c | tr -d ' '");
    EXPECT_TRUE(seen.out == "200a\n" || seen.out == "200b\n") << seen.out;
  }
}

}  // namespace
}  // namespace carrel::test
