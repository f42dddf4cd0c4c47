// Long-lived sandboxes from their making to their end, and what survives whom.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "support/box.h"
#include "support/fixture.h"
#include "support/patience.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Lifecycle : public CarrelTest {
 protected:
  std::vector<std::string> live() const {
    std::vector<std::string> ids;
    json list = json::parse(carrel({"ls", "--json"}).out, nullptr, false);
    for (const json& one : list["sandboxes"]) {
      ids.push_back(one["id"]);
    }
    return ids;
  }
  // The keepers of this test.
  static std::vector<pid_t> keepers() {
    std::vector<pid_t> found;
    for (const HostProcess& process : descendants()) {
      auto words = read_text("/proc/" + std::to_string(process.pid) + "/cmdline");
      if (words.has_value() && words->find(std::string("\0keeper\0", 8)) != std::string::npos) {
        found.push_back(process.pid);
      }
    }
    return found;
  }
  static bool kill_keepers() {
    const std::vector<pid_t> all = keepers();
    for (pid_t keeper : all) {
      ::kill(keeper, SIGKILL);
    }
    return !all.empty() && eventually(seconds(5), [] { return keepers().empty(); });
  }
};
CARREL_AS_BOTH(Lifecycle);

// R15, R100
TEST_P(Lifecycle, RemovedSandboxLeavesNothing) {
  carrel({"run", "--", "true"});
  Leftovers before = Leftovers::snapshot();
  Box box(GetParam());
  EXPECT_EQ(box.sh("(setsid sleep 600 &); sleep 600 & touch ~/f /tmp/g h").status, 0);
  EXPECT_NE(Leftovers::snapshot().since(before), "") << "there is something to remove";
  Run removed = box.remove();
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(removed.out, box.id() + "\n");
  // An engine removes a container a moment after its end.
  EXPECT_TRUE(eventually(seconds(walls().engine() ? 5 : 0), [&] {
    return Leftovers::snapshot().since(before).empty();
  })) << Leftovers::snapshot().since(before);
  EXPECT_EQ(live(), std::vector<std::string>());
}

// R16
TEST_P(Lifecycle, FailedCreateLeavesNothingAndSaysWhy) {
  carrel({"run", "--", "true"});
  Leftovers before = Leftovers::snapshot();
  Run run = carrel({"create", "--image", "dir:/nonexistent"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "Failed to create sandbox: "));
  EXPECT_NE(run.err.find("/nonexistent"), std::string::npos);
  EXPECT_EQ(left_since(before), "");
  EXPECT_EQ(live(), std::vector<std::string>());
  Run named = carrel({"create", "--image", "nonexistent:latest"});
  EXPECT_EQ(named.status, 125);
  EXPECT_TRUE(says_one_line(named, "nonexistent:latest"));
  if (!as_root() && !Place::user_has_service_manager()) {
    Run required = carrel({"create", "--require", "memory"});
    EXPECT_EQ(required.status, 125);
    EXPECT_TRUE(says_one_line(required, "'memory' is required"));
  }
  EXPECT_EQ(left_since(before), "");
}

// R17
TEST_P(Lifecycle, UseBeforeCreateAndAfterRemoveIsAClearError) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"sh", "nobody", "true"},
                                                {"exec", "nobody", "--", "true"},
                                                {"info", "nobody"},
                                                {"stats", "nobody"},
                                                {"logs", "nobody"},
                                                {"attach", "nobody"},
                                                {"rm", "nobody"}}) {
    Run run = carrel(words);
    EXPECT_EQ(run.status, 125) << words[0];
    EXPECT_TRUE(says_one_line(run, "nobody")) << words[0];
  }
  Box box(GetParam());
  EXPECT_EQ(box.remove().status, 0);
  Run after = box.sh("echo ran");
  EXPECT_EQ(after.status, 125);
  EXPECT_TRUE(says_one_line(after, box.id()));
  json error = json::parse(box.sh("true", {"--json"}).out, nullptr, false);
  EXPECT_EQ(error["error"]["code"], "not_found") << error;
}

// R18
TEST_P(Lifecycle, CommandThatIgnoresTermIsGoneAfterTheGrace) {
  Box box(GetParam());
  Process process(
      launch({"sh", box.id(), "trap '' TERM HUP INT; echo up; while :; do sleep 1; done"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  Run removed = box.remove();
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_LT(removed.duration, patient(seconds(4)));
  Run run = process.wait(seconds(2));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 125) << run.err;
  EXPECT_EQ(live(), std::vector<std::string>());
}

// R18
TEST_P(Lifecycle, TermReachesTheCommandBeforeTheKill) {
  Box box(GetParam());
  Process process(launch({"exec", box.id(), "--", "bash", "-c",
                          "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  EXPECT_EQ(box.remove().status, 0);
  process.wait(seconds(2));
  EXPECT_NE(process.out().find("saved"), std::string::npos);
}

// R18
TEST_P(Lifecycle, ForceDoesNotWait) {
  Box box(GetParam());
  Process process(launch({"sh", box.id(), "trap '' TERM; echo up; while :; do sleep 1; done"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  Run removed = box.remove({"--force"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_LT(removed.duration, patient(milliseconds(1500)));
  process.wait(seconds(2));
}

// R19
TEST_P(Lifecycle, RemovingTwiceIsOneErrorAndForceIsNone) {
  Box box(GetParam());
  EXPECT_EQ(box.remove().status, 0);
  Run again = box.remove();
  EXPECT_EQ(again.status, 125);
  EXPECT_TRUE(says_one_line(again, box.id()));
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_EQ(carrel({"rm", "--all"}).status, 0);
}

// R19
TEST_P(Lifecycle, RemoveGoesOnAfterOneThatIsMissing) {
  Box one(GetParam());
  Box two(GetParam());
  Run run = carrel({"rm", one.id(), "nobody", two.id()});
  EXPECT_EQ(run.status, 125);
  EXPECT_EQ(live(), std::vector<std::string>());
}

// R20
TEST_P(Lifecycle, SandboxIsListedAndFoundByItsNames) {
  Box box(GetParam(), {"--name", "my-box"});
  EXPECT_EQ(live(), std::vector<std::string>{box.id()});
  Run list = carrel({"ls"});
  EXPECT_NE(list.out.find(box.id()), std::string::npos);
  EXPECT_NE(list.out.find("my-box"), std::string::npos);
  EXPECT_EQ(carrel({"sh", "my-box", "echo by name"}).out, "by name\n");
  EXPECT_EQ(carrel({"sh", box.id().substr(0, 8), "echo by prefix"}).out, "by prefix\n");
  Run taken = carrel({"create", "--name", "my-box"});
  EXPECT_EQ(taken.status, 125);
  EXPECT_TRUE(says_one_line(taken, "my-box"));
  EXPECT_EQ(live().size(), 1U);
  EXPECT_EQ(carrel({"rm", "my-box"}).status, 0);
  EXPECT_EQ(carrel({"create", "--name", "my-box"}).status, 0) << "the name is free again";
}

// R21
TEST_P(Lifecycle, OperatorAttachesAShell) {
  if (::access("/usr/bin/script", X_OK) != 0) {
    GTEST_SKIP() << "this host has no script(1)";
  }
  Box box(GetParam());
  EXPECT_EQ(box.sh("echo agent > /workspace/agents-file").status, 0);
  Launch outer = launch({});
  outer.arguments = {"-qec", outer.program + " attach " + box.id(), "/dev/null"};
  outer.program = "/usr/bin/script";
  Process process(outer);
  // What is typed is echoed, so the answers must not be in the text of the questions.
  process.write(
      "echo /workspace/*; echo tty-$((1+1)); tty; grep CapEff /proc/self/status; id -u\r");
  EXPECT_TRUE(process.wait_for_output("tty-2", seconds(10))) << process.out();
  EXPECT_TRUE(process.wait_for_output("/dev/pts/", seconds(5))) << process.out();
  EXPECT_TRUE(process.wait_for_output("0000000000000000", seconds(5))) << process.out();
  EXPECT_NE(process.out().find("agents-file"), std::string::npos);
  process.write("exit 7\r");
  Run run = process.wait(seconds(5));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 7) << run.out;
  EXPECT_EQ(box.sh("echo still there").out, "still there\n");
}

// R22
TEST_P(Lifecycle, OrphansAreReaped) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("for i in $(seq 20); do (for j in 1 2 3 4 5; do (true &) ; done); done").status,
            0);
  EXPECT_TRUE(eventually(seconds(3), [&] {
    return box.exec({"bash", "-c", "cat /proc/[0-9]*/stat | grep -c ') Z '"}).out == "0\n";
  }));
}

// R23
TEST_P(Lifecycle, IdleSandboxStaysUp) {
  Box box(GetParam());
  std::this_thread::sleep_for(seconds(4));  // longer than an idle keeper stays
  EXPECT_EQ(box.sh("echo up").out, "up\n");
}

// R24
TEST_P(Lifecycle, HostnameIsItsOwn) {
  std::array<char, 256> before{};
  ASSERT_EQ(::gethostname(before.data(), before.size()), 0);
  Box box(GetParam());
  EXPECT_EQ(box.sh("hostname; uname -n; cat /etc/hostname").out, "sandbox\nsandbox\nsandbox\n");
  Box other(GetParam(), {"--hostname", "reading-room"});
  EXPECT_EQ(other.sh("hostname").out, "reading-room\n");
  EXPECT_NE(box.exec({"hostname", "changed"}).status, 0);
  std::array<char, 256> after{};
  ASSERT_EQ(::gethostname(after.data(), after.size()), 0);
  EXPECT_STREQ(before.data(), after.data());
}

// R26
TEST_P(Lifecycle, SandboxesOutliveTheirKeeperAndAreAdopted) {
  Box box(GetParam(), {"--name", "survivor"});
  EXPECT_EQ(box.sh("A=kept; sleep 600 &").status, 0);
  Process running(
      launch({"sh", box.id(), "echo up; sleep 1; echo done; exit 5", "--session", "two"}));
  ASSERT_TRUE(running.wait_for_output("up", seconds(10)));
  ASSERT_TRUE(kill_keepers());
  EXPECT_EQ(box.sh("echo $A; jobs | grep -c sleep").out, "kept\n1\n");
  EXPECT_EQ(running.wait(seconds(5)).status, 5);
  Box second(GetParam());
  EXPECT_EQ(live().size(), 2U);
  EXPECT_EQ(box.sh("echo $A").out, "kept\n");
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_EQ(live(), std::vector<std::string>{second.id()});
}

// R26
TEST_P(Lifecycle, WhatDiedWithoutAKeeperIsSwept) {
  carrel({"run", "--", "true"});
  Leftovers before = Leftovers::snapshot();
  Box box(GetParam());
  const pid_t first = box.first_process();
  ASSERT_GT(first, 1);
  ASSERT_TRUE(kill_keepers());
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(3), [&] { return live().empty(); }));
  EXPECT_EQ(left_since(before), "");
  Run gone = box.sh("echo ran");
  EXPECT_EQ(gone.status, 125);
  EXPECT_EQ(gone.out, "");
}

// R26
TEST_P(Lifecycle, OtherInstallationsAreNotTouched) {
  Box box(GetParam());
  const std::string other = place().work(GetParam()) + "/other-home";
  ASSERT_EQ(::mkdir(other.c_str(), 0700), 0);
  place().give(other, GetParam());
  Options options{.environment = {"CARREL_HOME=" + other}};
  Run made = carrel({"create"}, options);
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string foreign = made.out.substr(0, 36);
  EXPECT_EQ(live(), std::vector<std::string>{box.id()});
  EXPECT_EQ(carrel({"rm", "--force", foreign}).status, 0);
  EXPECT_EQ(carrel({"rm", "--all"}).status, 0);
  EXPECT_EQ(carrel({"sh", foreign, "echo alive"}, options).out, "alive\n");
  EXPECT_EQ(carrel({"rm", "--all"}, options).status, 0);
  const std::string label = read_text(other + "/installation").value_or("none");
  EXPECT_NE(label, place().label(GetParam()));
  remove_groups(label);
}

// R26: one keeper, and every create its own sandbox
TEST_P(Lifecycle, ConcurrentCreatesShareOneKeeper) {
  std::vector<std::thread> threads;
  std::vector<Run> runs(8);
  for (Run& run : runs) {
    threads.emplace_back([&] { run = carrel({"create"}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::set<std::string> ids;
  for (const Run& run : runs) {
    EXPECT_EQ(run.status, 0) << run.err;
    ids.insert(run.out);
  }
  EXPECT_EQ(ids.size(), runs.size());
  EXPECT_EQ(live().size(), runs.size());
  EXPECT_EQ(keepers().size(), 1U);
}

// A sandbox ends by itself when its lease is over, whoever is there to see it.
TEST_P(Lifecycle, LeaseEndsTheSandboxEvenWithoutAKeeper) {
  carrel({"run", "--", "true"});
  Leftovers before = Leftovers::snapshot();
  Box box(GetParam(), {"--lease", "1s"});
  EXPECT_EQ(box.sh("(setsid sleep 600 &)").status, 0);
  ASSERT_TRUE(kill_keepers());
  EXPECT_TRUE(eventually(seconds(4), [&] { return live().empty(); }));
  EXPECT_EQ(left_since(before), "");
}

// R209, R14
TEST_P(Lifecycle, DeathDuringACommandIsToldAtOnce) {
  Box box(GetParam());
  const pid_t first = box.first_process();
  ASSERT_GT(first, 1);
  Process process(launch({"sh", "--json", box.id(), "touch /tmp/up; sleep 600"}));
  ASSERT_TRUE(
      eventually(seconds(10), [&] { return box.exec({"test", "-e", "/tmp/up"}).status == 0; }));
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  Run run = process.wait(seconds(2));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 125);
  EXPECT_EQ(json::parse(run.out)["error"]["code"], "gone");
  Run after = box.sh("echo ran");
  EXPECT_EQ(after.status, 125);
  EXPECT_TRUE(says_one_line(after, box.id()));
  EXPECT_TRUE(eventually(seconds(3), [&] { return live().empty(); }));
  json info = box.info();
  EXPECT_EQ(info["state"], "ended");
  EXPECT_NE(info["reason"], "");
}

// The caller of a command may go at any time: the sandbox stays usable.
TEST_P(Lifecycle, KilledCallerLeavesTheSandboxUsable) {
  Box box(GetParam());
  for (const std::string command : {"exec", "sh"}) {
    std::vector<std::string> words = {command, box.id()};
    if (command == "exec") {
      words.insert(words.end(), {"--", "bash", "-c"});
    }
    words.emplace_back("echo up; sleep 2");
    Process process(launch(words));
    ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
    process.send(SIGKILL);
    process.wait(seconds(2));
    EXPECT_EQ(box.exec({"echo", "beside"}).out, "beside\n") << command;
    Run next = box.sh("echo ok", {"--timeout", "10"}, {.timeout_seconds = 20});
    EXPECT_EQ(next.out, "ok\n") << command << next.err;
  }
}

// R67 for a long-lived sandbox
TEST_P(Lifecycle, InterruptEndsTheCommandNotTheSandbox) {
  Box box(GetParam());
  Process process(launch({"sh", box.id(), "A=kept; echo up; sleep 600"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  process.send(SIGINT);
  Run run = process.wait(seconds(5));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 130);
  EXPECT_EQ(box.sh("echo ok").out, "ok\n");
}

// A detached command's output and end can be had later.
TEST_P(Lifecycle, DetachedCommandIsFollowedByItsNumber) {
  Box box(GetParam());
  Run started = carrel({"exec", "--detach", box.id(), "--", "bash", "-c",
                        "for i in 1 2 3; do echo $i; sleep 0.1; done; exit 6"});
  ASSERT_EQ(started.status, 0) << started.err;
  const std::string number = started.out.substr(0, started.out.find('\n'));
  Run followed = carrel({"logs", "--follow", "--command", number, box.id()});
  EXPECT_EQ(followed.out, "1\n2\n3\n") << followed.err;
  EXPECT_EQ(followed.status, 6);
  EXPECT_EQ(carrel({"logs", "--command", number, "--from", "2", box.id()}).out, "2\n3\n");
}

// R72, R84
TEST_P(Lifecycle, OverstepOfTheMemoryLimitIsAnEventAndNotTheEnd) {
  Box box(GetParam(), {"--memory", "64m"});
  json result = box.result("python3 -c 'x = bytearray(200 << 20)'");
  EXPECT_TRUE(result["oom_killed"]) << result;
  EXPECT_EQ(result["exit_code"], 137);
  EXPECT_EQ(box.sh("echo alive").out, "alive\n");
  json found;
  for (const json& event : box.events()) {
    found = event["event"] == "limit" ? event : found;
  }
  ASSERT_TRUE(found.is_object()) << "no event tells of it";
  EXPECT_EQ(found["limit"], "memory");
  EXPECT_EQ(found["allowed"], 64 << 20) << found;
  EXPECT_GT(found["used"], 32 << 20) << found;
}

// R18: the grace is for commands that are still at work
TEST_P(Lifecycle, IdleSandboxIsRemovedAtOnce) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("true").status, 0);
  EXPECT_EQ(box.sh("true", {"--session", "other"}).status, 0);
  Run run = carrel({"rm", box.id()});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_LT(run.duration, patient(milliseconds(700)));
}

// R85
TEST_P(Lifecycle, StatsShowLiveUse) {
  Box box(GetParam());
  Process process(launch({"sh", box.id(),
                          "python3 -c 'x = bytearray(100 << 20)\nprint(\"up\", flush=True)\n"
                          "while True: pass'"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  json first = json::parse(carrel({"stats", "--json", box.id()}).out, nullptr, false);
  ASSERT_TRUE(first.is_object());
  EXPECT_GT(first["memory_bytes"], 100 << 20) << first;
  EXPECT_LT(first["memory_bytes"], 300 << 20) << first;
  EXPECT_GE(first["pids"], 3) << first;
  EXPECT_LT(first["pids"], 10) << first;
  EXPECT_TRUE(eventually(seconds(5), [&] {
    json next = json::parse(carrel({"stats", "--json", box.id()}).out, nullptr, false);
    return next["cpu_usec"] > first["cpu_usec"];
  }));
  EXPECT_NE(carrel({"stats", box.id()}).out.find("memory"), std::string::npos);
  process.send(SIGINT);
  process.wait(seconds(5));
}

// R78, B-40
TEST_P(Lifecycle, CommandTimeoutIsTheSandboxsOrTheCalls) {
  Box box(GetParam());
  EXPECT_EQ(box.info()["settings"]["timeout"], "300");
  EXPECT_EQ(box.sh("sleep 600", {"--timeout", "200ms"}).status, 124);
  Run zero = box.sh("echo ran", {"--timeout", "0"});
  EXPECT_EQ(zero.status, 125);
  EXPECT_TRUE(says_one_line(zero, "timeout"));
  Box quick(GetParam(), {"--timeout", "300ms"});
  EXPECT_EQ(quick.sh("sleep 600").status, 124);
  EXPECT_EQ(quick.exec({"sleep", "600"}).status, 124);
  EXPECT_EQ(quick.sh("sleep 0.5; echo slept", {"--timeout", "5"}).out, "slept\n");
}

// R102
TEST_P(Lifecycle, InfoTellsTheBackendAndThatTheKernelIsShared) {
  Box box(GetParam());
  json info = box.info();
  EXPECT_EQ(info["backend"], walls().backend);
  EXPECT_EQ(info["isolation"], walls().isolation());
  EXPECT_EQ(
      carrel({"info", "--enforcement", box.id()}).out.find("kernel is shared") != std::string::npos,
      walls().isolation() == "namespace");
  json memory;
  for (const json& row : info["enforcement"]) {
    memory = row["name"] == "memory" ? row : memory;
  }
  // An engine holds the limits of an ordinary user's containers.
  EXPECT_EQ(memory["by"] == "watchdog", !as_root() && walls().backend != "docker") << memory;
}

}  // namespace
}  // namespace carrel::test
