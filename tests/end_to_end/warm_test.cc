// Sandboxes that the daemon has ready for the next ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Warm : public ServeTest {
 protected:
  long metric(const std::string& name) {
    const std::string text = get("/metrics").body;
    const std::size_t at = text.find("\ncarrel_" + name + " ");
    return at == std::string::npos ? -1 : std::stol(text.substr(at + name.size() + 9));
  }
  void serve_warm(int count) {
    serve({"--warm", std::to_string(count)});
    ASSERT_TRUE(eventually(10s, [&] { return metric("warm_sandboxes") == count; }))
        << get("/metrics").body;
  }
  // The first processes of all sandboxes of this test, warm or not.
  static std::vector<HostProcess> guests() {
    std::vector<HostProcess> found = descendants();
    std::erase_if(found, [](const HostProcess& one) {
      const std::string words =
          read_text("/proc/" + std::to_string(one.pid) + "/cmdline").value_or("");
      return !words.starts_with("carrel-guest") || !status_field(one.pid, "NSpid").ends_with("\t1");
    });
    return found;
  }
  [[nodiscard]] std::size_t boxes() const {
    std::size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(place().home(GetParam()) + "/run/box")) {
      count += entry.is_directory() ? 1U : 0U;
    }
    return count;
  }
};
CARREL_AS_BOTH(Warm);

TEST_P(Warm, SandboxIsMadeOfAReadyOneWhichIsReplaced) {
  serve_warm(2);
  std::set<pid_t> ready;
  for (const HostProcess& guest : guests()) {
    ready.insert(guest.pid);
  }
  EXPECT_EQ(ready.size(), 2U);
  // It is nobody's: no list has it.
  EXPECT_EQ(get("/v1/sandboxes?all=true").json()["sandboxes"].size(), 0U);
  EXPECT_EQ(metric("sandboxes"), 0);
  EXPECT_EQ(carrel({"ls"}).out.find("running"), std::string::npos);

  const std::string box = create({{"env", {{"WHO", "me"}}}, {"hostname", "mine"}});
  EXPECT_EQ(shell(box, "echo $WHO $(hostname) $PWD")["stdout"], "me mine /workspace\n");
  EXPECT_EQ(metric("warm_hits_total"), 1);
  EXPECT_EQ(metric("warm_misses_total"), 0);
  const json info = json::parse(carrel({"info", "--json", box.substr(box.rfind('/') + 1)}).out);
  EXPECT_TRUE(ready.contains(info.value("pid", 0)) || !info.contains("pid"));
  // The one that was taken lives on, and another is ready.
  EXPECT_TRUE(eventually(5s, [&] { return metric("warm_sandboxes") == 2; }));
  EXPECT_EQ(guests().size(), 3U);
  // What was used is not used again.
  EXPECT_EQ(remove(box).status, 204);
  EXPECT_EQ(metric("sandboxes"), 0);
  EXPECT_TRUE(eventually(5s, [&] { return guests().size() == 2; }));
}

// Its limits are on the workload's group, and it has to answer while that one is frozen.
TEST_P(Warm, FirstProcessEndsUpInAControlGroupOfItsOwn) {
  serve_warm(1);
  const std::vector<HostProcess> ready = guests();
  ASSERT_EQ(ready.size(), 1U);
  const std::string box = create();
  EXPECT_EQ(shell(box, "echo up")["stdout"], "up\n");
  const std::string file = "/proc/" + std::to_string(ready[0].pid) + "/cgroup";
  const std::string name = box.substr(box.rfind('/') + 1);
  if (read_text(file).value_or("").find(name) == std::string::npos) {
    EXPECT_TRUE(groups_of(place().label(GetParam())).empty());  // this user has no groups
    return;
  }
  EXPECT_TRUE(eventually(5s, [&] {
    return read_text(file).value_or("/work").find("/work") == std::string::npos;
  })) << read_text(file).value_or("");
  for (const HostProcess& process : descendants()) {
    if (process.parent == ready[0].pid) {
      const std::string groups =
          read_text("/proc/" + std::to_string(process.pid) + "/cgroup").value_or("");
      EXPECT_EQ(groups.find("/guest"), std::string::npos) << groups;
      EXPECT_THAT(groups, HasSubstr("/work"));
    }
  }
  EXPECT_EQ(post(box + "/pause", json::object()).json()["state"], "paused");
  EXPECT_EQ(post(box + "/resume", json::object()).json()["state"], "running");
  EXPECT_EQ(shell(box, "echo on")["stdout"], "on\n");
}

// Its first process is moved to a group of its own while others go on; until then it would be
// frozen with the workload.
TEST_P(Warm, OneThatIsPausedAtOnceCanBeWokenAgain) {
  serve_warm(1);
  for (int i = 0; i < 5; ++i) {
    const std::string box = create();
    EXPECT_EQ(post(box + "/pause", json::object()).json()["state"], "paused");
    EXPECT_EQ(post(box + "/resume", json::object()).json()["state"], "running");
    EXPECT_EQ(shell(box, "echo on")["stdout"], "on\n");
    EXPECT_EQ(remove(box).status, 204);
    EXPECT_TRUE(eventually(5s, [&] { return metric("warm_sandboxes") == 1; }));
  }
}

TEST_P(Warm, WithoutReadyOnesTheyAreMadeAndCounted) {
  serve_warm(1);
  const std::string first = create();
  const std::string second = create();
  EXPECT_EQ(shell(first, "echo one")["stdout"], "one\n");
  EXPECT_EQ(shell(second, "echo two")["stdout"], "two\n");
  EXPECT_EQ(metric("warm_hits_total") + metric("warm_misses_total"), 2);
  EXPECT_GE(metric("warm_hits_total"), 1);
}

TEST_P(Warm, SmallHostHasNoneUnlessItIsTold) {
  serve({"--warm", "0"});
  const std::string box = create();
  EXPECT_EQ(metric("warm_sandboxes_limit"), 0);
  EXPECT_EQ(metric("warm_hits_total") + metric("warm_misses_total"), 0);
  EXPECT_TRUE(says_one_line(carrel({"serve", "--warm", "65"}), "--warm"));
}

// What is different from one sandbox to the next, and has to be.
std::string without_own(std::string text, const std::string& id) {
  for (const std::string& word : {id, id.substr(0, 12)}) {
    for (std::size_t at; (at = text.find(word)) != std::string::npos;) {
      text.replace(at, word.size(), "ID");
    }
  }
  return text;
}

TEST_P(Warm, ReadyOneIsClosedAsTightlyAsANewOne) {
  serve_warm(1);
  const json wish = {{"memory", "96m"}, {"pids", 40},          {"tmp", "8m"},
                     {"cpus", 1},       {"env", {{"A", "b"}}}, {"hostname", "same"}};
  // Everything that a process can see of what holds it.
  const std::string look =
      "grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap|CoreDumping|THP)' "
      "/proc/self/status; cat /proc/self/limits /proc/self/mounts | sed 's/[ug]id=[0-9]*//g'; env "
      "| sort; "
      "nproc; "
      "cat /proc/meminfo /etc/passwd /etc/hosts /etc/hostname; stat -c '%A %U %G %n' /* "
      "/dev/* /etc/*; ls /proc/self/fd "
      "| wc -l; ls /sys/class/net /proc/1/root 2>&1; cat /proc/net/dev | wc -l; cat "
      "/proc/self/oom_score_adj; unshare -U true 2>&1; unshare -n true 2>&1; mount -t tmpfs x /mnt "
      "2>&1; touch /usr/x /etc/x 2>&1; cat /proc/1/environ 2>&1; kill -9 1 2>&1; mknod /tmp/n b 1 "
      "1 "
      "2>&1; echo x 2>&1 > /proc/sys/kernel/core_pattern; dd if=/dev/zero of=/tmp/full bs=1M "
      "count=20 2>&1 | grep -c 'No space'; rm -f /tmp/full";
  struct Observed {
    std::string inside;
    json enforcement;
    std::string told;
  };
  auto observe = [&](const std::string& box) {
    const std::string id = box.substr(box.rfind('/') + 1);
    const ApiAnswer answer = post(box + "/exec", {{"argv", {"bash", "-c", "exec 2>&1; " + look}}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Observed{without_own(answer.json().value("stdout", ""), id),
                    get(box).json()["enforcement"],
                    without_own(carrel({"info", "--enforcement", id}).out, id)};
  };
  const Observed ready = observe(create(wish));
  EXPECT_EQ(metric("warm_hits_total"), 1);
  daemon_->kill();
  serve({"--warm", "0"});
  const Observed made = observe(create(wish));
  EXPECT_EQ(metric("warm_hits_total"), 0);
  EXPECT_EQ(ready.inside, made.inside);
  EXPECT_THAT(ready.inside, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(ready.inside, HasSubstr("A=b"));
  EXPECT_EQ(ready.enforcement, made.enforcement);
  EXPECT_FALSE(ready.told.empty());
  EXPECT_EQ(ready.told, made.told);
}

TEST_P(Warm, LimitsAreThoseThatWereAskedFor) {
  serve_warm(1);
  const std::string box = create({{"pids", 12}, {"memory", "64m"}});
  ASSERT_EQ(metric("warm_hits_total"), 1);
  const ApiAnswer eater =
      post(box + "/exec",
           {{"argv", {"python3", "-c", "x = b'x' * (160 << 20)\nimport time\ntime.sleep(1)"}}});
  EXPECT_EQ(eater.json()["oom_killed"], true) << eater.body;
  const std::string bomb =
      "import os, time\nn = 0\ntry:\n  while n < 30:\n    if os.fork() == 0: time.sleep(0.4); "
      "os._exit(0)\n    n += 1\nexcept OSError: pass\nprint(n)";
  const json forked = post(box + "/exec", {{"argv", {"python3", "-c", bomb}}}).json();
  EXPECT_LT(std::stol("0" + forked.value("stdout", "")), 12) << forked.dump();
}

TEST_P(Warm, ReadyOneThatHasEndedIsNotTaken) {
  serve_warm(2);
  const std::vector<HostProcess> keepers = processes_of("keeper");
  ASSERT_EQ(keepers.size(), 1U);
  // It does not see that they end.
  ::kill(keepers[0].pid, SIGSTOP);
  for (const HostProcess& guest : guests()) {
    ::kill(guest.pid, SIGKILL);
  }
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    ::kill(keepers[0].pid, SIGCONT);
  });
  const std::string box = create();
  later.join();
  EXPECT_EQ(shell(box, "echo there")["stdout"], "there\n");
  EXPECT_EQ(metric("warm_hits_total"), 0);
  EXPECT_EQ(metric("warm_misses_total"), 1);
  EXPECT_TRUE(eventually(5s, [&] { return guests().size() == 3 && boxes() == 3; }));
}

TEST_P(Warm, NothingIsLeftWhenTheDaemonIsKilled) {
  serve_warm(2);
  EXPECT_EQ(boxes(), 2U);
  daemon_->kill();
  EXPECT_TRUE(eventually(5s, [&] { return guests().empty() && boxes() == 0; }));
  EXPECT_TRUE(eventually(5s, [&] { return groups_of(place().label(GetParam())).empty(); }));
  serve({"--warm", "0"});  // takes the socket of the one that was killed
}

TEST_P(Warm, KilledKeeperTakesThemAlongAndTheNextOneHasOthers) {
  serve_warm(2);
  const std::string box = create();
  ASSERT_TRUE(eventually(5s, [&] { return metric("warm_sandboxes") == 2; }));
  std::set<pid_t> before;
  for (const HostProcess& guest : guests()) {
    before.insert(guest.pid);
  }
  const std::vector<HostProcess> keepers = processes_of("keeper");
  ASSERT_EQ(keepers.size(), 1U);
  ::kill(keepers[0].pid, SIGKILL);
  // Those that were ready are gone, the one that is somebody's goes on.
  EXPECT_TRUE(eventually(10s, [&] {
    const std::vector<HostProcess> now = guests();
    return metric("warm_sandboxes") == 2 && now.size() == 3 &&
           std::count_if(now.begin(), now.end(),
                         [&](const HostProcess& one) { return before.contains(one.pid); }) == 1;
  }));
  EXPECT_EQ(boxes(), 3U);
  EXPECT_EQ(shell(box, "echo on")["stdout"], "on\n");
  EXPECT_EQ(shell(create(), "echo new")["stdout"], "new\n");
}

TEST_P(Warm, BothKilledLeaveNothingToTheNextCommand) {
  serve_warm(2);
  const std::vector<HostProcess> keepers = processes_of("keeper");
  ASSERT_EQ(keepers.size(), 1U);
  daemon_->kill();
  ::kill(keepers[0].pid, SIGKILL);
  EXPECT_TRUE(eventually(5s, [&] { return guests().empty(); }));
  EXPECT_EQ(carrel({"run", "--", "true"}).status, 0);
  EXPECT_EQ(boxes(), 0U);
  serve({"--warm", "0"});
}

class WarmMounts : public Warm {};
INSTANTIATE_TEST_SUITE_P(, WarmMounts, testing::Values(As::kRoot),
                         [](const testing::TestParamInfo<As>& one) { return name_of(one.param); });

// The keeper is in a mount namespace of its own here.
TEST_P(WarmMounts, ReadyOnesAreMadeAnewWhenTheHostsMountsAreOthers) {
  auto run = [&](const std::string& program, const std::vector<std::string>& arguments) {
    Launch launch = place().launch(GetParam(), {});
    launch.program = program;
    launch.arguments = arguments;
    return Process(launch).wait(20s);
  };
  const Run first = run("/usr/bin/unshare", {"-m", place().program(), "create"});
  ASSERT_EQ(first.status, 0) << first.err;
  serve_warm(2);
  std::set<pid_t> before;
  for (const HostProcess& guest : guests()) {
    before.insert(guest.pid);
  }
  ASSERT_EQ(before.size(), 3U);
  const std::vector<HostProcess> keepers = processes_of("keeper");
  ASSERT_EQ(keepers.size(), 1U);
  const Run mounted = run("/usr/bin/nsenter", {"-t", std::to_string(keepers[0].pid), "-m", "mount",
                                               "-t", "tmpfs", "new", "/mnt"});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  EXPECT_TRUE(eventually(5s, [&] {
    const std::vector<HostProcess> now = guests();
    return now.size() == 3 && std::count_if(now.begin(), now.end(), [&](const HostProcess& one) {
                                return before.contains(one.pid);
                              }) == 1;
  }));
  EXPECT_EQ(shell(create(), "echo there")["stdout"], "there\n");
}

}  // namespace
}  // namespace carrel::test
