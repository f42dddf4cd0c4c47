// Limits on memory, processors, processes, files and time, as far as this user can have them. An
// ordinary user without groups of his own has the next best; with groups, see given_groups_test.cc.
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "support/box.h"
#include "support/fixture.h"
#include "support/leftovers.h"
#include "support/patience.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Limits : public CarrelTest {
 protected:
  json result_of(const std::string& script, std::vector<std::string> options = {}) const {
    options.emplace_back("--json");
    Run run = bash(script, options);
    json result = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << run.out.substr(0, 300) << run.err;
    return result.is_object() ? result : json::object();
  }
  json python_result_of(const std::string& code, std::vector<std::string> options = {}) const {
    options.emplace_back("--json");
    Run run = python(code, options);
    json result = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << run.out.substr(0, 300) << run.err;
    return result.is_object() ? result : json::object();
  }
  // The limits that this user's sandboxes went over, as {name: allowed}.
  std::vector<json> limit_events() const {
    std::vector<json> found;
    std::istringstream lines(read_text(place().home(GetParam()) + "/events.jsonl").value_or(""));
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line, nullptr, false);
      if (event.value("event", "") == "limit") {
        EXPECT_GE(event["used"], event["allowed"]) << line;
        found.push_back(json{{event["limit"].get<std::string>(), event["allowed"]}});
      }
    }
    return found;
  }
  // The group of the one live sandbox in a v1 hierarchy; without a controller, in any.
  std::string group_of(const std::string& controller) const {
    const std::string mount = controller.empty() ? "/" : v1_mount(controller) + "/";
    for (const std::string& group : groups_of(place().label(GetParam()))) {
      if (group.starts_with(mount)) {
        return group;
      }
    }
    return "";
  }
  static void expect_out_of_memory(const json& result) {
    EXPECT_TRUE(result["oom_killed"]);
    EXPECT_FALSE(result["success"]);
    EXPECT_EQ(result["exit_code"], 137);
    EXPECT_NE(result["reason"].get<std::string>().find("out of memory"), std::string::npos);
  }
};
CARREL_AS_BOTH(Limits);

// R72
TEST_P(Limits, MemoryIs512MebibytesByDefault) {
  expect_out_of_memory(python_result_of("x = bytearray(700 << 20)\nprint('alive')"));
  json fits = python_result_of("x = bytearray(300 << 20)\nprint('alive')");
  EXPECT_EQ(fits["stdout"], "alive\n") << fits;
}

// R72, R74, B-20
TEST_P(Limits, OutOfMemoryIsToldFromAKill) {
  Run run = python("x = bytearray(200 << 20)", {"--memory", "64m"});
  EXPECT_EQ(run.status, 137);
  EXPECT_TRUE(says_one_line(run, "out of memory"));
  EXPECT_FALSE(result_of("kill -9 $$")["oom_killed"]);
}

// R72: the limit holds for all processes together
TEST_P(Limits, ManySmallProcessesShareTheLimit) {
  json result = python_result_of(
      "import os, time\n"
      "for i in range(10):\n"
      "  if os.fork() == 0:\n"
      "    x = bytearray(20 << 20)\n"
      "    time.sleep(3)\n"
      "    os._exit(0)\n"
      "print([os.wait()[1] for i in range(10)].count(0))\n",
      {"--memory", "96m"});
  EXPECT_TRUE(result["oom_killed"]) << result;
}

// R73, B-18
TEST_P(Limits, SwapDoesNotExtendTheLimit) {
  if (!as_root()) {
    GTEST_SKIP() << "without a control group there is no limit on swap to look at";
  }
  const bool v1 = !v1_mount("memory").empty();
  Process process(launch({"run", "--memory", "100m", "--", "bash", "-c", "echo up; sleep 600"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  const std::string group = v1 ? group_of("memory") : group_of("");
  ASSERT_NE(group, "");
  EXPECT_EQ(read_text(group + (v1 ? "/memory.limit_in_bytes" : "/memory.max")), "104857600\n");
  if (auto both = read_text(group + "/memory.memsw.limit_in_bytes")) {
    EXPECT_EQ(*both, "104857600\n");
  }
  if (auto swap = read_text(group + "/memory.swap.max")) {
    EXPECT_EQ(*swap, "0\n");
  }
  process.send(SIGINT);
  process.wait(seconds(5));
}

// R75
TEST_P(Limits, FourBusyLoopsGetOneCore) {
  Run run = bash(
      "for i in 1 2 3 4; do timeout 2 bash -c 'while :; do :; done' & done; wait;"
      "python3 -c 'import os; print(1)' >/dev/null; times | tail -1");
  // "1m2.345s 0m0.067s": what the children used in user and system mode
  int minutes[2] = {0, 0};
  double used[2] = {0, 0};
  ASSERT_EQ(
      std::sscanf(run.out.c_str(), "%dm%lfs %dm%lfs", &minutes[0], &used[0], &minutes[1], &used[1]),
      4)
      << run.out << run.err;
  EXPECT_LT(minutes[0] * 60 + used[0] + used[1], 2 * 1.1 + 0.1);
}

// R75
TEST_P(Limits, FractionOfACoreIsAFractionOrRefused) {
  if (!as_root() && !Place::user_has_service_manager()) {
    Run refused = bash("true", {"--cpus", "0.5", "--require", "cpu"});
    EXPECT_EQ(refused.status, 125);
    EXPECT_TRUE(says_one_line(refused, "'cpu' is required"));
    return;
  }
  Run run = bash("timeout 2 bash -c 'while :; do :; done'; times | tail -1",
                 {"--cpus", "0.5", "--require", "cpu"});
  int minutes = 0;
  double used = 0;
  ASSERT_EQ(std::sscanf(run.out.c_str(), "%dm%lfs", &minutes, &used), 2) << run.out << run.err;
  EXPECT_LT(used, 1.1 + 0.1);
}

// R76
TEST_P(Limits, ProcessesAre512ByDefault) {
  json result = python_result_of(
      "import os, time, errno, threading\n"
      "n = 0\n"
      "try:\n"
      "  while n < 500:\n"
      "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
      "    n += 1\n"
      "  while n < 600:\n"
      "    if os.fork() == 0:\n"
      "      time.sleep(600)\n"
      "    n += 1\n"
      "except OSError as e:\n"
      "  print(errno.errorcode[e.errno], n)\n"
      "os._exit(0)\n");
  EXPECT_EQ(result["stdout"], "EAGAIN 511\n") << result;
}

// R76, R84: told in the result, and an event
TEST_P(Limits, ReachedProcessLimitIsTold) {
  const std::string code =
      "import os, time\n"
      "while True:\n"
      "  if os.fork() == 0:\n"
      "    time.sleep(600)\n";
  json result = python_result_of(code, {"--pids", "20"});
  EXPECT_EQ(result["exit_code"], 1);
  EXPECT_EQ(result["reason"], "exit status 1; the limit of 20 processes was reached") << result;
  Run run = python(code, {"--pids", "20"});
  EXPECT_NE(
      run.err.find("carrel: exit status 1; the limit of 20 processes was reached (see --pids)\n"),
      std::string::npos)
      << run.err;
  EXPECT_EQ(result_of("exit 1")["reason"], "exit status 1");
  EXPECT_EQ(limit_events(), (std::vector<json>{json{{"pids", 20}}, json{{"pids", 20}}}));
}

// R84
TEST_P(Limits, OverstepOfTheMemoryLimitIsAnEvent) {
  expect_out_of_memory(python_result_of("x = bytearray(200 << 20)", {"--memory", "64m"}));
  EXPECT_EQ(limit_events(), (std::vector<json>{json{{"memory", 64 << 20}}}));
}

// R72: what processes share after a fork is there once
TEST_P(Limits, SharedPagesCountOnce) {
  json result = python_result_of(
      "import os, time\n"
      "x = bytearray(60 << 20)\n"
      "for i in range(4):\n"
      "  if os.fork() == 0:\n"
      "    time.sleep(1)\n"
      "    os._exit(0)\n"
      "print([os.wait()[1] for i in range(4)])\n",
      {"--memory", "160m"});
  EXPECT_EQ(result["stdout"], "[0, 0, 0, 0]\n") << result;
}

// R72: a file outlives the command that was ended while it had it, and can still be removed
TEST_P(Limits, FilesThatTookTheirPartOfTheMemoryCanBeRemoved) {
  Box box(GetParam(), {"--memory", "128m", "--tmp", "400m"});
  EXPECT_NE(
      box.sh("head -c 300M /dev/zero > /tmp/f; "
             "python3 -c 'import time; x = bytearray(120 << 20); time.sleep(2)' && echo alive")
          .out,
      "alive\n");
  if (!as_root() && !walls().engine()) {  // a group that is full has no room for another shell
    EXPECT_EQ(box.sh("rm /tmp/f; sleep 0.2; echo alive").out, "alive\n");
  }
}

// R76: threads count as well
TEST_P(Limits, ThreadsCountAsProcesses) {
  Run run = python(
      "import threading, time\n"
      "n = 0\n"
      "try:\n"
      "  while n < 200:\n"
      "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
      "    n += 1\n"
      "except RuntimeError:\n"
      "  pass\n"
      "print(n)\n",
      {"--pids", "20"});
  EXPECT_EQ(run.out, "19\n") << run.err;
}

// R76
TEST_P(Limits, ForkBombLeavesTheHostAndOthersResponsive) {
  for (const std::string bomb :
       {":(){ :|:& };:", "b() { b | b & } ; b", "while :; do bash -c 'sleep 600' & done"}) {
    Process process(launch({"run", "--timeout", "3", "--", "bash", "-c", bomb + "; sleep 600"}));
    EXPECT_TRUE(eventually(seconds(5), [] { return other_than_keepers().size() > 10; })) << bomb;
    EXPECT_LE(other_than_keepers().size(), 515U);
    Run other = carrel({"run", "--", "echo", "fine"}, {.timeout_seconds = 10});
    EXPECT_EQ(other.out, "fine\n") << other.err;
    EXPECT_LT(other.duration, patient(seconds(2)));
    process.send(SIGINT);
    process.send(SIGINT);
    Run run = process.wait(seconds(10));
    EXPECT_FALSE(run.timed_out) << bomb;
    EXPECT_TRUE(eventually(seconds(5), [] { return other_than_keepers().empty(); })) << bomb;
  }
}

// R77
TEST_P(Limits, DefaultTimeoutIsSaidInTheHelp) {
  Run help = carrel({"help", "run"});
  EXPECT_NE(help.out.find("(60; in a created"), std::string::npos) << help.out;
}

// R78, B-40
TEST_P(Limits, TimeoutOfZeroIsRefused) {
  for (const std::string zero : {"0", "0s", "0.0", "0ms", "-1"}) {
    Run run = bash("echo ran", {"--timeout", zero});
    EXPECT_EQ(run.status, 125) << zero;
    EXPECT_TRUE(says_one_line(run, "timeout")) << zero;
  }
}

// R79
TEST_P(Limits, TmpHolds100Mebibytes) {
  Run run = bash("head -c 200M /dev/zero > /tmp/f; wc -c < /tmp/f");
  // A few pages of it are for the directories themselves.
  EXPECT_NEAR(std::stod("0" + run.out), 100 << 20, 64 << 10);
  EXPECT_NE(run.err.find("No space left"), std::string::npos) << run.err;
  Run smaller = bash("head -c 9M /dev/zero > /tmp/f; wc -c < /tmp/f", {"--tmp", "8m"});
  EXPECT_NEAR(std::stod("0" + smaller.out), 8 << 20, 64 << 10);
}

// R79: /tmp and /dev/shm share the size, so that neither adds to it
TEST_P(Limits, SharedMemoryCountsAsTmp) {
  Run run = bash(
      "head -c 60M /dev/zero > /tmp/f; head -c 60M /dev/zero > /dev/shm/g;"
      "du -cm /tmp/f /dev/shm/g | tail -1 | cut -f1");
  EXPECT_EQ(run.out, "100\n") << run.err;
}

// R79: it never takes all of it
TEST_P(Limits, TmpCountsAsMemory) {
  const std::vector<std::string> options = {"--memory", "128m", "--tmp", "400m"};
  const std::string fill = "head -c 300M /dev/zero > /tmp/f; ";
  const std::string work = "python3 -c 'import time; x = bytearray(100 << 20); time.sleep(2)'";
  EXPECT_EQ(result_of(fill + "sleep 1; echo alive", options)["stdout"], "alive\n");
  EXPECT_EQ(result_of(work, options)["exit_code"], 0);
  expect_out_of_memory(result_of(fill + "exec " + work, options));
}

// R80
TEST_P(Limits, SizesAreReadAsWritten) {
  for (const std::string size : {"512m", "512M", "1g", "1.5g", "0.5G", "268435456", "300000k"}) {
    Run run = bash("true", {"--memory", size});
    EXPECT_EQ(run.status, 0) << size << run.err;
  }
  for (const std::string size :
       {"0", "-1", "-5m", "1.5.2g", "abc", "", " ", "1q", "0x10", "1e3m", "99999999999999999999",
        "999t", "1m1", "m", "nan", "inf", "+", "1,5g", "\xff"}) {
    Run run = bash("echo ran", {"--memory", size});
    EXPECT_EQ(run.status, 125) << size;
    EXPECT_TRUE(says_one_line(run, "memory")) << size;
  }
}

// R81
TEST_P(Limits, OpenFilesAreLimited) {
  Run run = python(
      "import errno, resource\n"
      "files = []\n"
      "try:\n"
      "  while len(files) < 1000000:\n"
      "    files.append(open('/dev/null'))\n"
      "except OSError as e:\n"
      "  print(errno.errorcode[e.errno], len(files) < 5000)\n"
      "try:\n"
      "  resource.setrlimit(resource.RLIMIT_NOFILE, (10000, 10000))\n"
      "except (ValueError, OSError):\n"
      "  print('fixed')\n");
  EXPECT_EQ(run.out, "EMFILE True\nfixed\n") << run.err;
}

// R81, B-23
TEST_P(Limits, NoCoreIsDumped) {
  Run run = bash(
      "python3 -c 'import resource as r; s, h = r.getrlimit(r.RLIMIT_CORE); print(h <= 1)';"
      "ulimit -c unlimited 2>/dev/null; bash -c 'kill -SEGV $$'; bash -c 'kill -QUIT $$';"
      "find /workspace /tmp ~ -name '*core*'");
  EXPECT_EQ(run.out, "True\n") << run.err;
}

// R82
TEST_P(Limits, DiskFillIsContained) {
  Run run = bash(
      "head -c 100M /dev/zero > /workspace/f; head -c 100M /dev/zero > ~/g;"
      "du -cm /workspace/f ~/g | tail -1 | cut -f1",
      {"--disk", "50m"});
  EXPECT_EQ(run.out, "50\n") << run.err;
  EXPECT_NE(run.err.find("No space left"), std::string::npos);
}

// R82: more than the memory, within the disk: something has to give, and it is not the host
TEST_P(Limits, QuietDiskFillerLeavesTheHostAlone) {
  std::uintmax_t most = 0;
  Process process(launch({"run", "--json", "--", "bash", "-c",
                          "for i in 1 2 3 4 5 6 7 8; do head -c 120M /dev/zero > f$i; done"}));
  for (bool ended = false; !ended;) {
    std::uintmax_t bytes = 0;
    std::error_code failed;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(place().home(GetParam()), failed)) {
      const std::uintmax_t size = entry.is_regular_file(failed) ? entry.file_size(failed) : 0;
      bytes += failed ? 0 : size;  // it may just have gone
    }
    most = std::max(most, bytes);
    ended = status_field(process.pid(), "State").starts_with('Z');
    std::this_thread::sleep_for(milliseconds(20));
  }
  process.wait(seconds(30));
  EXPECT_LT(most, 1U << 20) << "of the host's disk";
}

// R82: /workspace and HOME may be two places of one file system
TEST_P(Limits, WhatIsInTheWorkspaceCountsOnce) {
  Run run = bash("head -c 58M /dev/zero > f && sleep 1 && echo alive",
                 {"--memory", "100m", "--tmp", "1m"});
  EXPECT_EQ(run.out, "alive\n") << run.err;
}

// R82: as many empty files as one likes must end, too
TEST_P(Limits, FilesRunOutBeforeTheMemoryOfTheHost) {
  Run run = python(
      "import errno\n"
      "try:\n"
      "  for i in range(10**7):\n"
      "    open('/tmp/%d' % i, 'w').close()\n"
      "except OSError as e:\n"
      "  print(errno.errorcode[e.errno])\n",
      {"--tmp", "1m"});
  EXPECT_EQ(run.out, "ENOSPC\n") << run.err;
}

// R83
TEST_P(Limits, EndlessOutputEndsByTimeout) {
  Run run = bash("while true; do echo .; done", {"--timeout", "1", "--json"});
  EXPECT_EQ(run.status, 124);
  EXPECT_LT(run.duration, patient(seconds(4)));
  EXPECT_TRUE(json::parse(run.out)["timed_out"]);
}

// R83: nothing the command does to itself moves the deadline
TEST_P(Limits, StoppedAndDaemonizedCommandsEndByTimeout) {
  for (const std::string script :
       {"kill -STOP $$", "(setsid bash -c 'trap \"\" TERM HUP; sleep 600' &) ; kill -STOP $$",
        "exec >&- 2>&-; sleep 600", "trap '' TERM INT HUP QUIT; while :; do :; done"}) {
    Run run = bash(script, {"--timeout", "500ms"});
    // gVisor hangs up a group that stopped when one of its processes was orphaned: it ends sooner.
    EXPECT_TRUE(run.status == 124 || (walls().gvisor() && run.status == 129))
        << run.status << " " << script;
    EXPECT_LT(run.duration, patient(seconds(3))) << script;
    EXPECT_EQ(other_than_keepers().size(), 0U) << script;
  }
}

// R103
TEST_P(Limits, RequiredLimitIsHeldByAGroupOrRefused) {
  for (const std::string name : {"memory", "cpu"}) {
    Run run = bash("echo ran", {"--require", name});
    if (as_root() || Place::user_has_service_manager()) {
      EXPECT_EQ(run.out, "ran\n") << run.err;
    } else {
      EXPECT_EQ(run.status, 125);
      EXPECT_TRUE(says_one_line(run, "'" + name + "' is required"));
    }
  }
  EXPECT_EQ(bash("echo ran", {"--require", "pids,disk,landlock"}).out, "ran\n");
}

// R103: a fall-back is said once, on a terminal; a pipe stays clean
TEST_P(Limits, FallBackIsSaidOnATerminalOnly) {
  EXPECT_EQ(bash("true").err, "");
  Launch inner = launch({"run", "--", "echo", "ran"});
  Launch outer = inner;
  outer.program = "/usr/bin/script";
  outer.arguments = {"-qec", inner.program + " run -- echo ran", "/dev/null"};
  if (::access(outer.program.c_str(), X_OK) != 0) {
    GTEST_SKIP() << "this host has no script(1)";
  }
  Process process(outer);
  Run run = process.wait(seconds(10));
  EXPECT_NE(run.out.find("ran"), std::string::npos);
  const std::size_t said = run.out.find("memory limit is held by watchdog");
  EXPECT_EQ(said == std::string::npos, as_root()) << run.out;
}

}  // namespace
}  // namespace carrel::test
