// One-shot sandboxes whose first process comes from the keeper's nursery.
#include "support/nursery.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "support/box.h"
#include "support/fixture.h"
#include "support/host.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

class Nursery : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    box_ = std::make_unique<Box>(GetParam());
    ASSERT_NE(wait_for_nursery(GetParam()), 0) << "the keeper has no nursery";
  }

  // A sandbox that came from the nursery and waits for a line.
  [[nodiscard]] std::unique_ptr<Process> guest(const std::string& script) const {
    auto process = std::make_unique<Process>(
        launch({"run", "--", "bash", "-c", script + "; echo up; read -r line; echo end"}));
    EXPECT_TRUE(process->wait_for_output("up\n", seconds(20))) << process->err();
    EXPECT_NE(lent_process(), 0) << "it did not come from the nursery";
    return process;
  }

 private:
  std::unique_ptr<Box> box_;
};
CARREL_AS_BOTH(Nursery);

TEST_P(Nursery, SandboxesShareNothingThatOneOfThemWrote) {
  auto first =
      guest("for d in /tmp /workspace ~ /dev/shm; do echo secret > $d/left || echo cannot; done");
  const Run second = bash("cat /tmp/left /workspace/left ~/left /dev/shm/left; ls -A /tmp ~");
  EXPECT_EQ(second.out.find("secret"), std::string::npos);
  EXPECT_EQ(first->out().find("cannot"), std::string::npos);
  first->write("go\n");
  EXPECT_EQ(first->wait(seconds(20)).status, 0);
}

TEST_P(Nursery, EverySandboxHasItsOwnIdentityAndNamespaces) {
  const std::string facts =
      "cat /etc/machine-id /proc/sys/kernel/random/boot_id; "
      "for n in cgroup ipc mnt net pid time user uts; do readlink /proc/self/ns/$n; done";
  auto first = guest(facts);
  const Run second = bash(facts);
  ASSERT_EQ(second.status, 0) << second.err;
  std::istringstream mine(second.out);
  std::string line;
  int lines = 0;
  while (std::getline(mine, line)) {
    ++lines;
    EXPECT_EQ(first->out().find(line + "\n"), std::string::npos) << line << " is shared";
  }
  EXPECT_EQ(lines, 10);
}

TEST_P(Nursery, AsRootEverySandboxHasItsOwnIds) {
  auto first = guest("true");
  auto second = guest("true");
  std::set<std::string> ids;
  for (const pid_t one : lent_processes()) {
    ids.insert(status_field(one, "Uid"));
  }
  // An ordinary user has one id for all of his sandboxes.
  EXPECT_EQ(ids.size(), as_root() ? 2U : 1U);
  for (const std::string& id : ids) {
    EXPECT_EQ(std::atoi(id.c_str()) == static_cast<int>(Place::user_id()), !as_root());
    EXPECT_NE(std::atoi(id.c_str()), 0);
  }
}

TEST_P(Nursery, NobodyHearsTheNetworkOfTheSandboxBefore) {
  const std::string listen =
      "python3 -c 'import socket,time; s=socket.socket(); s.bind((\"127.0.0.1\", 8080)); "
      "s.listen(); a=socket.socket(socket.AF_UNIX); a.bind(\"\\0carrel\"); a.listen(); "
      "time.sleep(600)' & sleep 0.5";
  auto first = guest(listen);
  const Run second = bash(
      "python3 -c 'import socket\n"
      "for f, a in ((socket.AF_INET, (\"127.0.0.1\", 8080)), (socket.AF_UNIX, \"\\0carrel\")):\n"
      "  s = socket.socket(f)\n"
      "  try:\n"
      "    s.connect(a); print(\"reached\")\n"
      "  except OSError as e: print(\"refused\")'");
  EXPECT_EQ(second.out, "refused\nrefused\n") << second.err;
}

TEST_P(Nursery, LimitsHold) {
  Run run = carrel({"run", "--memory", "64m", "--", "python3", "-c",
                    "b = bytearray(300 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"});
  EXPECT_EQ(run.status, 137) << run.err;
  EXPECT_NE(run.err.find("out of memory"), std::string::npos) << run.err;
  run = carrel({"run", "--timeout", "1", "--", "sleep", "600"});
  EXPECT_EQ(run.status, 124);
  run = bash("head -c 200M /dev/zero > /tmp/much");
  EXPECT_NE(run.err.find("No space left"), std::string::npos) << run.err;
  run = carrel({"run", "--pids", "5", "--", "bash", "-c",
                "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait"});
  EXPECT_NE(run.err.find("fork"), std::string::npos) << run.err;
}

TEST_P(Nursery, OtherKindsOfSandboxesAreMadeWithoutIt) {
  EXPECT_EQ(carrel({"run", "--writable-root", "--", "touch", "/usr/made"}).status, 0);
  EXPECT_EQ(carrel({"run", "--hostname", "elsewhere", "--", "hostname"}).out, "elsewhere\n");
  EXPECT_EQ(carrel({"code", "-"}, {.input = "print(42)\n"}).out, "42\n");
}

// What confines whoever asks confines his sandbox, which the keeper knows nothing of.
TEST_P(Nursery, CallersOwnLimitsAreNotLeftBehind) {
  auto under = [&](std::vector<std::string> words, const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {"run", "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    Launch launched = launch(arguments);
    words.push_back(launched.program);
    launched.program = words.front();
    words.erase(words.begin());
    launched.arguments.insert(launched.arguments.begin(), words.begin(), words.end());
    return Process(launched).wait(seconds(20));
  };
  EXPECT_EQ(under({"/usr/bin/nice", "-n", "5"}, {"nice"}).out, "5\n");
  EXPECT_EQ(under({"/usr/bin/prlimit", "--cpu=1234"}, {"bash", "-c", "ulimit -t"}).out, "1234\n");
  EXPECT_EQ(under({"/usr/bin/prlimit", "--nofile=77:77"}, {"bash", "-c", "ulimit -n"}).out, "77\n");
}

TEST_P(Nursery, SandboxesGoOnWithoutIt) {
  auto first = guest("true");
  const pid_t old = nursery();
  ASSERT_EQ(::kill(old, SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(5), [&] { return nursery() != old; }));
  EXPECT_EQ(bash("echo other").out, "other\n");
  first->write("go\n");
  EXPECT_EQ(first->wait(seconds(20)).status, 0);
  EXPECT_NE(first->out().find("end\n"), std::string::npos);
  EXPECT_NE(wait_for_nursery(GetParam()), 0) << "the keeper makes a new one";
}

TEST_P(Nursery, EndsWithItsKeeper) {
  const pid_t one = nursery();
  const std::string keeper = status_field(one, "PPid");
  ASSERT_EQ(::kill(static_cast<pid_t>(std::atoi(keeper.c_str())), SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(5), [&] { return nursery() == 0; }));
  EXPECT_EQ(bash("echo without").out, "without\n");
}

TEST_P(Nursery, SandboxEndsWithTheCommandThatWantedIt) {
  auto first = guest("(setsid sleep 600 &)");
  const pid_t lent = lent_process();
  first->send(SIGKILL);
  EXPECT_TRUE(eventually(seconds(5), [&] { return status_field(lent, "State").empty(); }));
}

TEST_P(Nursery, StoppedNurseryIsNotWaitedForTooLong) {
  const pid_t one = nursery();
  ASSERT_EQ(::kill(one, SIGSTOP), 0);
  const Run run = bash("echo patient");
  ::kill(one, SIGCONT);
  EXPECT_EQ(run.out, "patient\n") << run.err;
  EXPECT_LT(run.duration, patient(seconds(10)));
}

TEST_P(Nursery, StoppedProcessThatWaitsIsNotWaitedForTooLong) {
  EXPECT_EQ(bash("true").status, 0);  // the next one is made ready now
  pid_t waiting = 0;
  ASSERT_TRUE(eventually(seconds(3), [&] {
    for (const HostProcess& process : descendants()) {
      if (is_nursery(process) && process.parent == nursery()) {
        waiting = process.pid;
      }
    }
    return waiting != 0;
  }));
  ASSERT_EQ(::kill(waiting, SIGSTOP), 0);
  // More than a socket holds.
  const std::string code = "# " + std::string(1U << 20, 'x') + "\nprint(42)\n";
  const Run run = carrel({"code", "-"}, {.input = code});
  ::kill(waiting, SIGCONT);
  EXPECT_EQ(run.out, "42\n") << run.err;
  EXPECT_LT(run.duration, patient(seconds(10)));
}

// One-shots that follow each other within seconds, where nobody made a long-lived sandbox.
class OneShotsInARow : public CarrelTest {
 protected:
  static bool nothing_runs(seconds patience) {
    return eventually(patience, [] { return descendants().empty(); });
  }
  static bool a_nursery_runs() {
    const std::vector<HostProcess> all = descendants();
    return std::any_of(all.begin(), all.end(), is_nursery);
  }
};
CARREL_AS_BOTH(OneShotsInARow);

TEST_P(OneShotsInARow, ASingleOneLeavesNoProcess) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_TRUE(stays_false_for(std::chrono::milliseconds(300), a_nursery_runs));
  EXPECT_TRUE(nothing_runs(seconds(5)));
}

TEST_P(OneShotsInARow, TheSecondStartsANurseryForThoseAfterIt) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_EQ(bash("true").status, 0);
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  Process third(launch({"run", "--", "bash", "-c", "echo up; read -r line"}));
  ASSERT_TRUE(third.wait_for_output("up\n", seconds(20))) << third.err();
  EXPECT_NE(lent_process(), 0);
  third.write("go\n");
  EXPECT_EQ(third.wait(seconds(20)).status, 0);
}

TEST_P(OneShotsInARow, ItGoesWhenNoneHasComeForSeconds) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_EQ(bash("true").status, 0);
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  std::filesystem::last_write_time(place().home(GetParam()) + "/run/one-shots",
                                   std::filesystem::file_time_type::clock::now() - seconds(11));
  EXPECT_TRUE(nothing_runs(seconds(20)));
}

TEST_P(OneShotsInARow, ThoseThatANurseryCannotServeStartNone) {
  const std::string source = place().work(GetParam());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(carrel({"run", "--mount", source + ":/mnt", "--", "true"}).status, 0);
  }
  EXPECT_TRUE(stays_false_for(std::chrono::milliseconds(300), a_nursery_runs));
  EXPECT_TRUE(nothing_runs(seconds(5)));
}

// Groups that a one-shot of root leaves for the next: see places.h.
class Places : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    box_ = std::make_unique<Box>(GetParam());
    ASSERT_NE(wait_for_nursery(GetParam()), 0) << "the keeper has no nursery";
    if (GetParam() == As::kUser) {
      GTEST_SKIP() << "an ordinary user has no ranges of ids, and so no places";
    }
    ASSERT_FALSE(v1_mount("memory").empty() && v1_mount("pids").empty() && group_mounts().empty());
  }

  static std::vector<std::string> kept() {
    std::vector<std::string> found = groups_of(place().label(GetParam()));
    std::erase_if(
        found, [](const std::string& group) { return group.find("-place-") == std::string::npos; });
    return found;
  }
  // What the kernel made of it: another group of the same name has another number.
  static std::vector<ino_t> numbers() {
    std::vector<ino_t> found;
    for (const std::string& group : kept()) {
      struct stat info{};
      found.push_back(::stat(group.c_str(), &info) == 0 ? info.st_ino : 0);
    }
    return found;
  }

  std::unique_ptr<Box> box_;
};
CARREL_AS_BOTH(Places);

TEST_P(Places, TheNextOneHasTheGroupsOfTheLast) {
  EXPECT_EQ(bash("true").status, 0);
  const std::vector<ino_t> first = numbers();
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_EQ(numbers(), first);
}

TEST_P(Places, LimitsAreThoseOfEachOne) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_FALSE(kept().empty());
  const char* use = "b = bytearray(100 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1";
  EXPECT_EQ(carrel({"run", "--memory", "64m", "--", "python3", "-c", use}).status, 137);
  EXPECT_EQ(carrel({"run", "--memory", "256m", "--", "python3", "-c", use}).status, 0);
  EXPECT_EQ(carrel({"run", "--memory", "64m", "--", "python3", "-c", use}).status, 137);
  const Run small = carrel({"run", "--cpus", "0.01", "--", "true"});
  EXPECT_EQ(small.status, 0) << small.err;
  EXPECT_EQ(carrel({"run", "--memory", "256m", "--", "python3", "-c", use}).status, 0);
}

TEST_P(Places, WhatALimitWasFeltInIsNotLeft) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_FALSE(kept().empty());
  const Run many = carrel({"run", "--pids", "5", "--", "python3", "-c",
                           "import os, time\n"
                           "try:\n"
                           "  while os.fork(): pass\n"
                           "  time.sleep(60)\n"
                           "except BlockingIOError: print('refused')"});
  EXPECT_EQ(many.out, "refused\n") << many.err;
  EXPECT_TRUE(kept().empty());
  const Run after = carrel({"run", "--json", "--", "false"});
  EXPECT_EQ(after.out.find("processes was reached"), std::string::npos) << after.out;
}

TEST_P(Places, SeveralAtOnceHaveOneEach) {
  std::vector<std::unique_ptr<Process>> rooms;
  for (int i = 0; i < 3; ++i) {
    rooms.push_back(
        std::make_unique<Process>(launch({"run", "--", "bash", "-c", "echo up; read -r line"})));
    ASSERT_TRUE(rooms.back()->wait_for_output("up\n", seconds(20))) << rooms.back()->err();
  }
  for (const std::string& group : kept()) {
    EXPECT_FALSE(is_idle_place(group)) << group;
  }
  for (auto& room : rooms) {
    room->write("go\n");
    EXPECT_EQ(room->wait(seconds(20)).status, 0);
  }
  EXPECT_FALSE(kept().empty());
}

TEST_P(Places, GoWithTheKeeper) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_FALSE(kept().empty());
  EXPECT_EQ(box_->remove().status, 0);
  std::filesystem::last_write_time(place().home(GetParam()) + "/run/one-shots",
                                   std::filesystem::file_time_type::clock::now() - seconds(11));
  EXPECT_TRUE(eventually(seconds(20), [] { return kept().empty(); }));
}

TEST_P(Places, OfAKilledKeeperGoWithTheNextCommand) {
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_FALSE(kept().empty());
  const std::string keeper = status_field(nursery(), "PPid");
  ASSERT_EQ(::kill(static_cast<pid_t>(std::atoi(keeper.c_str())), SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(5), [&] { return nursery() == 0; }));
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_TRUE(kept().empty());
}

TEST_P(Places, OneOfAKilledCommandIsSweptAndUsedAgain) {
  EXPECT_EQ(bash("true").status, 0);
  const std::vector<ino_t> first = numbers();
  Process room(launch({"run", "--", "bash", "-c", "(setsid sleep 600 &); echo up; read -r line"}));
  ASSERT_TRUE(room.wait_for_output("up\n", seconds(20))) << room.err();
  room.send(SIGKILL);
  EXPECT_TRUE(eventually(seconds(5), [] { return lent_process() == 0; }));
  EXPECT_EQ(bash("true").status, 0);  // it sweeps, and has a place of its own
  for (const std::string& group : kept()) {
    EXPECT_TRUE(is_idle_place(group)) << group;
  }
  EXPECT_EQ(bash("true").status, 0);
  EXPECT_NE(numbers(), first);
}

}  // namespace
}  // namespace carrel::test
