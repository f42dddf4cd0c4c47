// Sandboxes that the daemon has ready for the next ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
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
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    for (const HostProcess& process : descendants()) {
      if (process.parent == parent) {
        found.push_back(process.pid);
      }
    }
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

// Both kinds of ready ones: the one that is locked in already, and the one that can become
// anything.
TEST_P(Warm, ReadyOneIsClosedAsTightlyAsANewOne) {
  serve_warm(2);
  const json wish = {{"memory", "96m"}, {"pids", 40},          {"tmp", "8m"},
                     {"cpus", 1},       {"env", {{"A", "b"}}}, {"hostname", "same"}};
  // Everything that a process can see of what holds it.
  const std::string look =
      "grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap|CoreDumping|THP)' "
      "/proc/self/status; cat /proc/self/limits /proc/self/mounts | sed 's/[ug]id=[0-9]*//g; "
      "s/self.fd.[0-9]*/fd/g'; env "
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
  // Of what was locked in ahead, with more and without; of what was built ahead with other sizes;
  // and kinds for which it is built anew.
  const json usual = {{"pids", 40}, {"env", {{"A", "b"}}}, {"workdir", "/tmp/w"}};
  const json sizes = {{"memory", "96m"}, {"tmp", "8m"}, {"disk", "24m"}, {"cpus", 1}};
  const std::string shown = place().work(GetParam()) + "/shown";
  ASSERT_TRUE(std::filesystem::create_directory(shown));
  place().give(shown, GetParam());
  const json tree = {{"mounts", {{{"source", shown}, {"target", "/workspace/shown"}}}}};
  const json elsewhere = {{"mounts", {{{"source", shown}, {"target", "/data"}}}}};
  const std::vector<json> wishes = {wish,      json::object(),           usual, sizes, tree,
                                    elsewhere, {{"writable_root", true}}};
  std::vector<Observed> ready;
  for (const json& one : wishes) {
    ready.push_back(observe(create(one)));
    EXPECT_EQ(metric("warm_hits_total"), static_cast<long>(ready.size())) << one.dump();
    ASSERT_TRUE(eventually(10s, [&] { return metric("warm_sandboxes") == 2; }));
  }
  EXPECT_THAT(ready[0].inside, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(ready[0].inside, HasSubstr("A=b"));
  daemon_->kill();
  serve({"--warm", "0"});
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    SCOPED_TRACE(wishes[i].dump());
    const Observed made = observe(create(wishes[i]));
    EXPECT_EQ(ready[i].inside, made.inside);
    EXPECT_EQ(ready[i].enforcement, made.enforcement);
    EXPECT_FALSE(ready[i].told.empty());
    EXPECT_EQ(ready[i].told, made.told);
  }
  EXPECT_EQ(metric("warm_hits_total"), 0);
}

// What was built ahead knows nothing of these.
TEST_P(Warm, SizesTextsAndTimeAreThoseOfTheTaking) {
  serve_warm(2);
  std::this_thread::sleep_for(2100ms);
  const Clock::time_point asked = Clock::now();
  const auto taken = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  const std::string box = create({{"tmp", "8m"}, {"disk", "12m"}, {"memory", "80m"}});
  const std::string other = create();
  ASSERT_EQ(metric("warm_hits_total"), 2);
  auto fits = [&](const std::string& where, int megabytes) {
    return shell(box, "dd if=/dev/zero of=" + where +
                          "/f bs=1M count=" + std::to_string(megabytes) +
                          " 2>/dev/null; s=$?; rm -f " + where + "/f; exit $s")["exit_code"] == 0;
  };
  EXPECT_TRUE(fits("/tmp", 7));
  EXPECT_FALSE(fits("/tmp", 9));
  EXPECT_TRUE(fits("/workspace", 11));
  EXPECT_FALSE(fits("/workspace", 13));
  EXPECT_THAT(shell(box, "head -1 /proc/meminfo")["stdout"].get<std::string>(),
              HasSubstr(" 81920 kB"));
  const std::string since = shell(box, "sed -n 's/^btime //p' /proc/stat")["stdout"];
  EXPECT_GE(std::stoll("0" + since), taken);
  // One that counts from when it was built is two seconds older than that.
  const double uptime =
      std::stod("0" + shell(box, "cut -d' ' -f1 /proc/uptime")["stdout"].get<std::string>());
  EXPECT_LT(uptime, 1 + std::chrono::duration<double>(Clock::now() - asked).count());
  // Nobody can write to what stands in the place of the host's files, and no two are the same.
  EXPECT_NE(shell(box, "echo x > /proc/stat")["exit_code"], 0);
  for (const char* file : {"/etc/machine-id", "/proc/sys/kernel/random/boot_id"}) {
    EXPECT_NE(shell(box, std::string("cat ") + file)["stdout"],
              shell(other, std::string("cat ") + file)["stdout"]);
  }
}

// Whether its first process has given up all that it could still do, and so can be nothing else.
bool is_locked(pid_t guest) {
  return status_field(guest, "CapEff").find_first_not_of("\t0") == std::string::npos &&
         status_field(guest, "Seccomp").ends_with("2") &&
         status_field(guest, "NoNewPrivs").ends_with("1");
}

TEST_P(Warm, AllButOneAreLockedInAlready) {
  serve_warm(3);
  std::vector<pid_t> locked;
  std::vector<pid_t> open;
  for (const HostProcess& guest : guests()) {
    (is_locked(guest.pid) ? locked : open).push_back(guest.pid);
  }
  ASSERT_EQ(locked.size(), 2U);
  ASSERT_EQ(open.size(), 1U);
  // Nothing but its first process is in it, and the one that will start the workload, as closed.
  for (const pid_t guest : locked) {
    EXPECT_TRUE(eventually(5s, [&] {
      const std::vector<pid_t> below = children_of(guest);
      return below.size() == 1 && is_locked(below[0]);
    })) << children_of(guest).size();
  }
  // What it cannot be is made of the other one; of these no more than one is used for each.
  const std::string mine = create({{"hostname", "mine"}});
  EXPECT_EQ(shell(mine, "hostname")["stdout"], "mine\n");
  EXPECT_TRUE(is_locked(open[0]));
  EXPECT_EQ(metric("warm_hits_total"), 1);
  const std::string usual = create({{"pids", 40}, {"env", {{"WHO", "me"}}}});
  EXPECT_EQ(shell(usual, "echo $WHO $(hostname)")["stdout"], "me sandbox\n");
  EXPECT_EQ(metric("warm_hits_total"), 2);
  EXPECT_TRUE(eventually(5s, [&] { return metric("warm_sandboxes") == 3; }));
  EXPECT_EQ(guests().size(), 5U);
}

// The one below it is the sandbox's, unless that has other variables or limits: then it is
// replaced.
TEST_P(Warm, SpawnerThatWaitsIsOfTheUsualSandboxOnly) {
  serve_warm(2);
  std::map<pid_t, pid_t> waiting;
  ASSERT_TRUE(eventually(5s, [&] {
    for (const HostProcess& guest : guests()) {
      if (const auto below = children_of(guest.pid); is_locked(guest.pid) && below.size() == 1) {
        waiting[guest.pid] = below[0];
      }
    }
    return waiting.size() == 1;
  }));
  const auto [guest, spawner] = *waiting.begin();
  const std::string usual = create(json::object());
  EXPECT_EQ(post(usual + "/exec", {{"argv", {"true"}}}).json()["exit_code"], 0);
  // Who has just ended may still be its child.
  EXPECT_TRUE(eventually(5s, [&] { return children_of(guest) == std::vector<pid_t>{spawner}; }))
      << children_of(guest).size();
  // Its clocks are those of the other processes, whoever starts them.
  ASSERT_EQ(::kill(spawner, SIGKILL), 0);
  const std::string before = shell(usual, "cut -d. -f1 /proc/uptime")["stdout"];
  EXPECT_LT(std::stol("0" + before), 10) << before;

  ASSERT_TRUE(eventually(5s, [&] { return metric("warm_sandboxes") == 2; }));
  std::set<pid_t> others;
  for (const HostProcess& one : guests()) {
    if (one.pid != guest && is_locked(one.pid)) {
      others.insert(one.pid);
    }
  }
  ASSERT_EQ(others.size(), 1U);
  const std::vector<pid_t> replaced = children_of(*others.begin());
  const std::string mine = create({{"env", {{"WHO", "me"}}}});
  EXPECT_EQ(post(mine + "/exec", {{"argv", {"sh", "-c", "echo $WHO"}}}).json()["stdout"], "me\n");
  EXPECT_NE(children_of(*others.begin()), replaced);
}

// What no ready one can become is made anew, and is what was asked for.
TEST_P(Warm, WhatTheLockedOnesAreNotIsMadeAnew) {
  serve_warm(2);
  std::vector<std::string> made;
  for (int i = 0; i < 4; ++i) {  // faster than they are made
    made.push_back(create({{"hostname", "h" + std::to_string(i)}, {"tmp", "8m"}}));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(shell(made[static_cast<std::size_t>(i)],
                    "hostname; df -m /tmp | awk 'NR==2{print $2}'")["stdout"],
              "h" + std::to_string(i) + "\n8\n");
  }
  EXPECT_EQ(metric("warm_hits_total") + metric("warm_misses_total"), 4);
}

TEST_P(Warm, LockedOneHasTimeTextsAndLimitsOfTheTaking) {
  serve_warm(2);
  std::this_thread::sleep_for(2100ms);
  const Clock::time_point asked = Clock::now();
  const auto taken = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  // More memory, and files in it as large as in those that were made ahead.
  const json wish = {{"memory", "600m"},   {"disk", 217251840}, {"pids", 12},
                     {"timeout", 7},       {"lease", 3600},     {"workdir", "/tmp/w"},
                     {"env", {{"A", "b"}}}};
  const ApiAnswer made = post("/v1/sandboxes", wish);
  ASSERT_EQ(made.status, 201) << made.body;
  ASSERT_EQ(metric("warm_hits_total"), 1);
  const std::string box = "/v1/sandboxes/" + made.json()["id"].get<std::string>();
  EXPECT_FALSE(get(box).json()["lease_ends_ms"].is_null());
  EXPECT_THAT(shell(box, "head -1 /proc/meminfo")["stdout"].get<std::string>(),
              HasSubstr(" 614400 kB"));
  const std::string since = shell(box, "sed -n 's/^btime //p' /proc/stat")["stdout"];
  EXPECT_GE(std::stoll("0" + since), taken);
  // One that counts from when it was built is two seconds older than that.
  const double uptime =
      std::stod("0" + shell(box, "cut -d' ' -f1 /proc/uptime")["stdout"].get<std::string>());
  EXPECT_LT(uptime, 1 + std::chrono::duration<double>(Clock::now() - asked).count());
  EXPECT_EQ(shell(box, "echo $PWD $A")["stdout"], "/tmp/w b\n");
  EXPECT_NE(shell(box, "echo x > /proc/stat")["exit_code"], 0);
  const ApiAnswer eater =
      post(box + "/exec",
           {{"argv", {"python3", "-c", "x = b'x' * (700 << 20)\nimport time\ntime.sleep(60)"}}});
  EXPECT_EQ(eater.json()["oom_killed"], true) << eater.body;
  const ApiAnswer late = post(box + "/exec", {{"argv", {"sleep", "20"}}});
  EXPECT_EQ(late.json()["timed_out"], true) << late.body;
  // Some of them stay for a while, so they come last.
  const std::string bomb =
      "import os, time\nn = 0\ntry:\n  while n < 30:\n    if os.fork() == 0: time.sleep(5); "
      "os._exit(0)\n    n += 1\nexcept OSError: pass\nprint(n)";
  const json forked = post(box + "/exec", {{"argv", {"python3", "-c", bomb}}}).json();
  EXPECT_LT(std::stol("0" + forked.value("stdout", "99")), 12) << forked.dump();
}

// It is not as idle as it was in the pool.
TEST_P(Warm, IdleTimeBeginsWithTheTaking) {
  serve_warm(2);
  constexpr auto kIdle = 3s;
  Clock::time_point asked;
  std::string box;
  // What somebody unmounts on the host while they wait has them made anew, and the one that is
  // asked for then is no warm one.
  ASSERT_TRUE(eventually(60s, [&] {
    EXPECT_TRUE(eventually(10s, [&] { return metric("warm_sandboxes") == 2; }));
    std::this_thread::sleep_for(kIdle + 500ms);
    asked = Clock::now();
    box = create({{"on_idle", "remove"}, {"idle_timeout", kIdle.count()}});
    return metric("warm_hits_total") == 1;
  })) << get("/metrics").body;
  // As long as its time is not over, which it may be after any one call on a busy host.
  for (std::string state; state = get(box).json()["state"], Clock::now() - asked < kIdle;) {
    ASSERT_EQ(state, "running");
    std::this_thread::sleep_for(50ms);
  }
}

TEST_P(Warm, LimitsAreThoseThatWereAskedFor) {
  serve_warm(1);
  const std::string box = create({{"pids", 12}, {"memory", "64m"}});
  ASSERT_EQ(metric("warm_hits_total"), 1);
  const ApiAnswer eater =
      post(box + "/exec",
           {{"argv", {"python3", "-c", "x = b'x' * (160 << 20)\nimport time\ntime.sleep(60)"}}});
  EXPECT_EQ(eater.json()["oom_killed"], true) << eater.body;
  const std::string bomb =
      "import os, time\nn = 0\ntry:\n  while n < 30:\n    if os.fork() == 0: time.sleep(5); "
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
