#include <chrono>
#include <memory>
#include <thread>

#include "attacks/attack_test.h"
#include "support/patience.h"
#include "support/walls.h"

// Attacks on a long-lived sandbox: on its first process, on its neighbours, and on what comes
// after it.
namespace carrel::test {
namespace {

using std::chrono::seconds;

class BoxAttack : public AttackTest {
 protected:
  // A probe as a separate process of the sandbox.
  Run probe_in(const std::string& id, const std::string& name,
               const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> words = {"exec", id, "--"};
    for (const std::string& word : probe_command(name, arguments)) {
      words.push_back(word);
    }
    Options options;
    options.input = probe_bytes();
    return attack(words, options);
  }
};
CARREL_AS_BOTH(BoxAttack);

TEST_P(BoxAttack, E14_TheGuestsSocketIsOutOfReach) {
  const std::string id = create();
  EXPECT_TRUE(held(probe_in(id, "E14_NoSocketOfTheFirstProcessAnswers")));
  EXPECT_TRUE(held(probe_in(id, "E14_ListenersOfTheHostAreUnreachable", canaries().listeners())));
  EXPECT_TRUE(held(probe_in(id, "A15_NoPathOfTheHostIsToldOrReachable",
                            {path_in_its_file_system("/usr"), path_in_its_file_system("/etc"),
                             place().home(GetParam())})));
}

TEST_P(BoxAttack, A03_NoInheritedDescriptorArrives) {
  const std::string id = create();
  EXPECT_TRUE(held(probe_in(id, "A03_OnlyThreeDescriptorsAreOpen")));
}

TEST_P(BoxAttack, A21_TheFirstProcessIsClosed) {
  EXPECT_TRUE(held(probe_in(create(), "A21_TheFirstProcessIsClosed")));
}

TEST_P(BoxAttack, E06_OtherProcessesCannotBeTakenOver) {
  const std::string id = create();
  EXPECT_TRUE(held(probe_in(id, "E06_OtherProcessesCannotBeTakenOver")));
  EXPECT_TRUE(held(probe_in(id, "E06_TheFirstProcessCannotBeDisturbed")));
  EXPECT_TRUE(held(probe_in(id, "E01_NoCapabilityIsHeld")));
  EXPECT_TRUE(held(probe_in(id, "E04_NamespacesAreRefused")));
  expect_usable(id, "attempts at the first process");
}

// The helpers between the first process and a command have the workload's user: they can be
// killed, stopped and starved, and the sandbox must answer all the same.
TEST_P(BoxAttack, E06_KilledHelpersAreReplaced) {
  const std::string id = create();
  for (const char* text : {"kill -9 -1", "kill -STOP 1; kill -9 1; kill -TERM 1", "kill -9 $PPID",
                           "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done 2>/dev/null",
                           "renice 19 -p $PPID >/dev/null; true"}) {
    EXPECT_FALSE(sh(id, text, {"--timeout", "10"}).timed_out) << text;
    expect_usable(id, text);
    const Run run = attack({"exec", "--timeout", "10", id, "--", "bash", "-c", text});
    EXPECT_FALSE(run.timed_out) << text;
    expect_usable(id, text);
    EXPECT_EQ(attack({"exec", "--timeout", "10", id, "--", "echo", "ok"}).out, "ok\n") << text;
  }
}

TEST_P(BoxAttack, E06_ACommandOutlivesTheProcessAboveItsShell) {
  const std::string id = create();
  const Run run = sh(id, "kill -9 $PPID; sleep 0.3; echo alive; X=kept; (exit 4)");
  EXPECT_EQ(run.out, "alive\n") << run.err;
  EXPECT_EQ(run.status, 4) << run.err;
  EXPECT_EQ(sh(id, "echo \"<$X>\"").out, "<>\n") << "the shell had to be replaced";
  EXPECT_EQ(sh(id, "sleep 100 & kill -9 $PPID; sleep 0.3; exit 5").status, 5);
  EXPECT_EQ(sh(id, "pgrep -c sleep").out, "0\n") << "what nobody minds is ended with the shell";
  EXPECT_EQ(sh(id, "kill -9 $PPID; sleep 60", {"--timeout", "2"}).status, 124);
  expect_usable(id, "a timeout without a minder");
}

TEST_P(BoxAttack, E06_StoppedHelpersAreReplaced) {
  const std::string id = create();
  for (const char* text : {"kill -STOP -1; echo x", "kill -STOP $PPID; echo x"}) {
    const Run run = sh(id, text, {"--timeout", "3"});
    EXPECT_FALSE(run.timed_out) << text;
    EXPECT_LT(run.duration, patient(seconds(15))) << text;
    expect_usable(id, text);
    EXPECT_EQ(attack({"exec", "--timeout", "10", id, "--", "echo", "ok"}).out, "ok\n") << text;
  }
}

TEST_P(BoxAttack, G03_OutOfMemoryEndsTheCommandAndNotTheSandbox) {
  const std::string id = create({"--memory", "64m"});
  const Run run = sh(id, "python3 -c 'x = b\"a\" * (300 << 20); import time; time.sleep(5)'",
                     {"--json", "--timeout", "20"});
  EXPECT_NE(run.out.find("\"oom_killed\":true"), std::string::npos) << run.out << run.err;
  expect_usable(id, "out of memory");
}

TEST_P(BoxAttack, G03_OutOfMemoryIsNotTurnedAgainstTheFirstProcess) {
  const std::string id = create({"--memory", "64m"});
  sh(id,
     "echo 1000 > /proc/1/oom_score_adj; echo -1000 > /proc/self/oom_score_adj; "
     "for p in /proc/[0-9]*; do echo 1000 > $p/oom_score_adj; done; "
     "python3 -c 'x = b\"a\" * (300 << 20); import time; time.sleep(5)'",
     {"--timeout", "20"});
  expect_usable(id, "out of memory");
}

// Pages of files are the sandbox's, too, and given back: a large file is no way to the host's
// memory and no way to be ended.
TEST_P(BoxAttack, G03_PagesOfLargeFilesStayWithinTheMemory) {
  const std::string id = create({"--memory", "64m", "--workspace", "pages", "--disk", "400m"});
  const Run run =
      sh(id,
         "head -c 200M /dev/zero > big && for i in 1 2; do cat big > /dev/null; done && "
         "echo done",
         {"--timeout", "50"});
  EXPECT_EQ(run.out, "done\n") << run.err;
  const Run stats = attack({"stats", "--json", id});
  const std::string mark = "\"memory_bytes\":";
  const std::size_t at = stats.out.find(mark);
  ASSERT_NE(at, std::string::npos) << stats.out << stats.err;
  // The control group around gVisor has room for its kernel, which pages of files can be in as
  // well.
  const long long kernel = walls().gvisor() ? 256LL << 20 : 0;
  EXPECT_LE(std::stoll(stats.out.substr(at + mark.size())), (64LL << 20) + kernel);
  expect_usable(id, "a large file");
}

TEST_P(BoxAttack, G07_AFullSandboxStillAnswers) {
  const std::string id = create({"--tmp", "8m", "--disk", "8m"});
  sh(id,
     "for d in /tmp /workspace /home/agent /dev/shm /var/tmp; do "
     "head -c 100M /dev/zero > $d/full; done 2>/dev/null");
  expect_usable(id, "full disks");
  sh(id,
     "cd /tmp; rm -f full; i=0; while : > f$i; do i=$((i+1)); [ $i -gt 30000 ] && break; done "
     "2>/dev/null",
     {"--timeout", "60"});
  expect_usable(id, "no inode left");
  EXPECT_EQ(attack({"exec", id, "--", "echo", "ok"}).out, "ok\n");
}

TEST_P(BoxAttack, G01_AForkBombLeavesTheSandboxUsable) {
  const std::string id = create();
  sh(id, ":(){ :|:& };:; sleep 2", {"--timeout", "3"});
  EXPECT_TRUE(eventually(
      seconds(20), [&] { return sh(id, "kill -9 -1; true", {"--timeout", "3"}).status == 0; }));
  expect_usable(id, "a fork bomb");
}

TEST_P(BoxAttack, G09_ManyCommandsAtOnceAreBorne) {
  const std::string id = create({"--pids", "200"});
  const std::string other = create();
  std::vector<std::unique_ptr<Process>> commands;
  // With ptrace gVisor takes the more tasks for each process the busier it is: see
  // docs/backends.md.
  const int at_once = walls().gvisor() ? 10 : 30;
  for (int i = 0; i < at_once; ++i) {
    commands.push_back(
        std::make_unique<Process>(launch({"exec", "--timeout", "4", id, "--", "bash", "-c",
                                          "head -c 200M /dev/zero | base64 | wc -c"})));
  }
  std::this_thread::sleep_for(seconds(1));
  const Run run = sh(other, "echo fair", {"--timeout", "20"});
  EXPECT_EQ(run.out, "fair\n");
  EXPECT_LT(run.duration, patient(seconds(10)));
  for (const HostProcess& process : descendants()) {
    if (process.name.starts_with("carrel")) {
      EXPECT_LT(std::atol(status_field(process.pid, "VmRSS").c_str()), 128 << 10) << process.name;
    }
  }
  for (auto& command : commands) {
    EXPECT_FALSE(command->wait(seconds(40)).timed_out);
  }
  // What gVisor's kernel has to end then takes it a while.
  EXPECT_TRUE(eventually(seconds(walls().gvisor() ? 20 : 0),
                         [&] { return sh(id, "echo back").out == "back\n"; }));
  expect_usable(id, "many commands");
}

// Numbers of processes are used again and again while commands are ended by their time limit: no
// other process may be hit.
TEST_P(BoxAttack, G12_EndingACommandHitsNoOtherProcess) {
  const std::string id = create();
  Process watched(launch({"exec", id, "--", "bash", "-c", "echo up; sleep 8; exit 21"}));
  ASSERT_TRUE(watched.wait_for_output("up", seconds(10)));
  for (int i = 0; i < 4; ++i) {
    const Run run = attack({"exec", "--timeout", "1", id, "--", "bash", "-c",
                            "trap '' TERM; while :; do /bin/true; (:) & done 2>/dev/null"});
    EXPECT_EQ(run.status, 124) << run.err;
  }
  EXPECT_EQ(watched.wait(seconds(30)).status, 21);
  expect_usable(id, "a churn of processes");
}

TEST_P(BoxAttack, G13_NothingOfACommandOutlivesItsTimeout) {
  const std::string id = create();
  for (const char* text :
       {"(setsid sleep 4343 &); setsid bash -c 'trap \"\" TERM; sleep 4343' & sleep 4343",
        "bash -c 'trap \"\" TERM INT; sleep 4343 & kill -STOP $$'"}) {
    const Run run = sh(id, text, {"--timeout", "1"});
    EXPECT_EQ(run.status, 124) << text << run.err;
    EXPECT_TRUE(eventually(seconds(5), [] { return !is_running("sleep"); })) << text;
    expect_usable(id, text);
  }
}

TEST_P(BoxAttack, H01_ADaemonEndsWithItsSandbox) {
  const std::string id = create();
  sh(id,
     "setsid nohup sleep 4242 >/dev/null 2>&1 & (setsid setsid sleep 4242 &); "
     "bash -c 'trap \"\" TERM HUP; sleep 4242' & disown -a");
  EXPECT_TRUE(eventually(seconds(5), [] { return is_running("sleep"); }));
  EXPECT_EQ(attack({"rm", id}).status, 0);
  EXPECT_TRUE(eventually(seconds(5), [] { return !is_running("sleep"); }));
}

TEST_P(BoxAttack, H03_ANewSandboxOfTheSameNameIsEmpty) {
  const std::string first = create({"--name", "twin", "--env", "TOKEN=old"});
  probe_in(first, "A19_NothingOfAnotherSandboxIsFound", {"leave"});
  sh(first,
     "export SECRET=old; echo old > /workspace/kept; echo old > ~/.bashrc; cp ~/.bashrc "
     "~/.profile; cd /tmp; echo old > /var/tmp/x");
  EXPECT_EQ(attack({"rm", "twin"}).status, 0);
  const std::string second = create({"--name", "twin"});
  EXPECT_NE(first, second);
  EXPECT_TRUE(held(probe_in(second, "A19_NothingOfAnotherSandboxIsFound")));
  const Run run = sh(second,
                     "pwd; echo \"$SECRET$TOKEN\"; ls -A /workspace ~ /var/tmp /run | "
                     "grep -v : ; cat ~/.bashrc 2>/dev/null; echo end");
  EXPECT_EQ(run.out.find("old"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("kept"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.substr(0, 11), "/workspace\n");
}

TEST_P(BoxAttack, E08_PlantedStartFilesAreNotRead) {
  const std::string id = create();
  sh(id,
     "echo 'echo PLANTED' | tee ~/.bashrc ~/.profile ~/.bash_profile ~/.bash_login ~/.inputrc "
     ">/dev/null; echo 'print(\"PLANTED\")' > ~/start.py; export BASH_ENV=~/.bashrc ENV=~/.bashrc");
  sh(id, "exit 3");
  EXPECT_EQ(sh(id, "echo clean").out, "clean\n");
  EXPECT_EQ(attack({"exec", id, "--", "bash", "-c", "echo clean"}).out, "clean\n");
  EXPECT_EQ(sh(id, "echo clean", {"--session", "other"}).out, "clean\n");
}

}  // namespace
}  // namespace carrel::test
