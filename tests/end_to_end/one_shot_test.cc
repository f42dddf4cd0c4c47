// A fresh sandbox for one command or one piece of source text.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/fixture.h"
#include "support/leftovers.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OneShot : public CarrelTest {
 protected:
  // How many processes of sandboxes there are below the test: the program itself does not count.
  static std::size_t sandboxed(pid_t program) {
    std::size_t count = 0;
    for (const HostProcess& process : other_than_keepers()) {
      count += process.pid != program ? 1U : 0U;
    }
    return count;
  }
};
CARREL_AS_BOTH(OneShot);

// R61
TEST_P(OneShot, PythonIsTheDefaultLanguage) {
  Run run = carrel({"code", "-"}, {.input = "print(42)\n"});
  EXPECT_EQ(run.out, "42\n");
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.status, 0);
}

// R61
TEST_P(OneShot, LeavesNothingAtTheMomentItReturns) {
  carrel({"run", "--", "true"});  // makes the state directory
  Leftovers before = Leftovers::snapshot();
  EXPECT_EQ(bash("(setsid sleep 600 &) ; touch ~/f /tmp/g /workspace/h").status, 0);
  EXPECT_EQ(Leftovers::snapshot().since(before), "");
}

// R62
TEST_P(OneShot, BashCodeRuns) {
  Run run = carrel({"code", "--lang", "bash", "-"}, {.input = "echo $((6*7))"});
  EXPECT_EQ(run.out, "42\n");
  EXPECT_EQ(run.status, 0);
}

// R62
TEST_P(OneShot, LanguageFollowsTheFilesEnding) {
  file("a.sh", "echo $BASH_VERSINFO >/dev/null && echo shell");
  file("a.py", "import sys; print(sys.implementation.name)");
  EXPECT_EQ(carrel({"code", "a.sh"}).out, "shell\n");
  EXPECT_EQ(carrel({"code", "a.py"}).out, "cpython\n");
  EXPECT_EQ(carrel({"code", "--lang", "bash", "a.py"}).status, 2) << "the option decides";
}

// R62
TEST_P(OneShot, NodeCodeRuns) {
  if (::access("/usr/bin/node", X_OK) != 0) {
    GTEST_SKIP() << "this host has no /usr/bin/node";
  }
  Run run =
      carrel({"code", "--lang", "node", "--memory", "1g", "-"}, {.input = "console.log(6*7)"});
  EXPECT_EQ(run.out, "42\n") << run.err;
}

// R63, B-17
TEST_P(OneShot, UnknownLanguageIsRefusedBeforeAnythingStarts) {
  Run run = carrel({"code", "--lang", "ruby", "-"}, {.input = "1"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "ruby"));
  EXPECT_FALSE(std::filesystem::exists(place().home(GetParam()) + "/run/once"));
}

// R64, B-14
TEST_P(OneShot, CodeIsReadOnlyAtAKnownPath) {
  Run run = python(
      "import os\n"
      "print(open('/workspace/code').read().count('import os'))\n"
      "for act in (lambda: open('/workspace/code', 'a'), lambda: os.unlink('/workspace/code'),\n"
      "            lambda: os.rename('/workspace/code', '/workspace/x'),\n"
      "            lambda: os.chmod('/workspace/code', 0o777)):\n"
      "  try:\n"
      "    act()\n"
      "    print('changed')\n"
      "  except OSError:\n"
      "    print('refused')\n");
  EXPECT_EQ(run.out, "2\nrefused\nrefused\nrefused\nrefused\n") << run.err;
}

// R64, B-14
TEST_P(OneShot, PrivateFileOfTheCallerIsReadable) {
  const std::string path = file("secretive.py", "print(42)");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(carrel({"code", path}).out, "42\n");
}

// R64
TEST_P(OneShot, CodeThatIsNotThereIsOneLine) {
  Run run = carrel({"code", "nowhere.py"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "nowhere.py"));
}

// R65
TEST_P(OneShot, StartsClean) {
  for (int i = 0; i < 2; ++i) {
    Run run = bash(
        "ls -A ~ /tmp /workspace /dev/shm /var/tmp 2>/dev/null | grep -v : | grep .;"
        "for d in ~ /tmp /workspace /dev/shm; do echo x > $d/x || echo no $d; done");
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "");
  }
}

// R66, B-1, B-16
TEST_P(OneShot, TimeoutKillsTheSandboxAndKeepsThePartialOutput) {
  Run run = python("print(1, flush=True)\nwhile True: pass\n", {"--timeout", "1"});
  EXPECT_EQ(run.status, 124);
  EXPECT_EQ(run.out, "1\n");
  EXPECT_NE(run.err.find("timed out"), std::string::npos) << run.err;
  EXPECT_LT(run.duration, patient(seconds(3)));
  EXPECT_EQ(sandboxed(0), 0U);
}

// R66
TEST_P(OneShot, TimeoutIsInTheResult) {
  Run run = bash("trap '' TERM INT HUP; echo a; echo b >&2; sleep 600 & sleep 600",
                 {"--timeout", "500ms", "--json"});
  EXPECT_EQ(run.status, 124);
  auto result = nlohmann::json::parse(run.out);
  EXPECT_TRUE(result["timed_out"]);
  EXPECT_FALSE(result["success"]);
  EXPECT_EQ(result["stdout"], "a\n");
  EXPECT_EQ(result["stderr"], "b\n");
  EXPECT_EQ(result["exit_code"], 124);
  EXPECT_LT(run.duration, patient(seconds(3)));
  EXPECT_EQ(sandboxed(0), 0U);
}

// R67, B-2
TEST_P(OneShot, InterruptEndsTheRun) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Process process(launch({"run", "--", "bash", "-c", "echo up; sleep 600"}));
    ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
    process.send(signal);
    Run run = process.wait(seconds(5));
    EXPECT_FALSE(run.timed_out) << signal;
    EXPECT_NE(run.status, 0) << signal;
    EXPECT_EQ(sandboxed(0), 0U) << signal;
  }
}

// R67
TEST_P(OneShot, SecondInterruptKillsWhatIgnoresTheFirst) {
  Process process(launch({"run", "--", "bash", "-c",
                          "trap 'echo heard' INT TERM; echo up; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  process.send(SIGINT);
  // A second one that is sent before the first was taken would be the same.
  ASSERT_TRUE(process.wait_for_output("heard", seconds(10)));
  process.send(SIGINT);
  Run run = process.wait(seconds(2));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 130);
  EXPECT_EQ(sandboxed(0), 0U);
}

// R67, R27, B-2
TEST_P(OneShot, DiesWithItsKilledCaller) {
  Process process(launch({"run", "--", "bash", "-c", "setsid sleep 600 & echo up; sleep 600"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  EXPECT_GE(sandboxed(process.pid()), 3U);
  process.send(SIGKILL);
  Run run = process.wait(seconds(5));
  EXPECT_EQ(run.signal, SIGKILL);
  EXPECT_TRUE(eventually(seconds(5), [] { return sandboxed(0) == 0; }));
  // The marks of a killed run are swept by the next one, once they are old enough to be no race.
  EXPECT_TRUE(eventually(seconds(8), [&] {
    return carrel({"run", "--", "true"}).status == 0 &&
           std::filesystem::is_empty(place().home(GetParam()) + "/run/once") &&
           std::filesystem::is_empty(place().home(GetParam()) + "/run/ids");
  }));
}

// R67: a reader that goes away ends the command, as in any pipeline
TEST_P(OneShot, ClosedPipeEndsTheRun) {
  Process process(launch({"run", "--", "yes"}));
  ASSERT_TRUE(process.wait_for_output("y\n", seconds(10)));
  process.close_output();
  Run run = process.wait(seconds(5));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 128 + SIGPIPE);
}

// R69, B-19
TEST_P(OneShot, HomeAndTmpAreWritable) {
  Run run = python(
      "import tempfile, os, subprocess\n"
      "open(os.path.expanduser('~/x'), 'w').write('1')\n"
      "tempfile.NamedTemporaryFile().write(b'1')\n"
      "open('y', 'w').write('1')\n"
      "print(os.getcwd(), os.environ['HOME'], os.path.expanduser('~'))\n");
  EXPECT_EQ(run.out, "/workspace /home/agent /home/agent\n") << run.err;
}

// R69
TEST_P(OneShot, PipTellsItsVersion) {
  if (!std::filesystem::exists("/usr/lib/python3/dist-packages/pip")) {
    GTEST_SKIP() << "this host has no python3-pip";
  }
  Run run = bash("python3 -m pip --version");
  EXPECT_EQ(run.out.substr(0, 4), "pip ") << run.err;
}

// R70, B-22
TEST_P(OneShot, FailureKeepsBothStreams) {
  Run run = python("print('before')\nraise ValueError('inside')\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "before\n");
  EXPECT_NE(run.err.find("ValueError: inside"), std::string::npos);
}

// The command's input is the caller's, or nothing.
TEST_P(OneShot, InputIsPassedOnUnlessSwitchedOff) {
  std::string megabytes(3U << 20, 'x');
  EXPECT_EQ(carrel({"run", "--", "wc", "-c"}, {.input = megabytes}).out, "3145728\n");
  EXPECT_EQ(carrel({"run", "--no-stdin", "--", "wc", "-c"}, {.input = "abc"}).out, "0\n");
  EXPECT_EQ(carrel({"run", "--", "cat"}).out, "");
}

// An input that stays open does not keep a finished command.
TEST_P(OneShot, EndsWhileItsInputIsStillOpen) {
  Process process(launch({"run", "--", "echo", "done"}));
  EXPECT_TRUE(process.wait_for_output("done", seconds(10)));
  EXPECT_TRUE(eventually(seconds(5), [&] {
    return status_field(process.pid(), "State").empty() ||
           status_field(process.pid(), "State")[0] == 'Z';
  }));
  EXPECT_EQ(process.wait(seconds(1)).status, 0);
}

TEST_P(OneShot, R28_SetupPreparesOnceAndThenChangesNothing) {
  const Run first = carrel({"setup"});
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("made ")) << first.out;
  const Run second = carrel({"setup"});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(second.out.starts_with("nothing to do: ")) << second.out;
  EXPECT_EQ(carrel({"setup", "--json"}).out, "{\"home\":\"" + place().home(GetParam()) +
                                                 "\",\"image\":\"host\",\"changed\":false}\n");
}

TEST_P(OneShot, R28_SetupSaysWhatIsInTheWay) {
  Options options;
  options.environment = {"CARREL_HOME=/proc/nowhere"};
  const Run run = carrel({"setup"}, options);
  EXPECT_EQ(run.status, 125);
  EXPECT_NE(run.err.find("set CARREL_HOME to a directory that you can write to"), std::string::npos)
      << run.err;
}

}  // namespace
}  // namespace carrel::test
