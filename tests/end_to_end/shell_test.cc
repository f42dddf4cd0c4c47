// The long-lived shell of a sandbox: what stays from one command to the next, and what no command
// can do to it.
#include <algorithm>
#include <csignal>
#include <memory>
#include <sstream>
#include <thread>

#include "support/box.h"
#include "support/fixture.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Shell : public CarrelTest {
 protected:
  static void expect_usable(const Box& box, const std::string& after,
                            std::vector<std::string> options = {}) {
    json next = box.result("echo ok", std::move(options));
    EXPECT_EQ(next["stdout"], "ok\n") << after << next;
    EXPECT_EQ(next["exit_code"], 0) << after;
  }
};
CARREL_AS_BOTH(Shell);

// R29
TEST_P(Shell, AllCommandsShareOneShellWithoutStartFiles) {
  Box box(GetParam(), {"--env", "BASH_ENV=/home/agent/.bashrc"});
  EXPECT_EQ(box.sh("echo $$").out, box.sh("echo $$").out);
  EXPECT_EQ(
      box.sh("for f in .bashrc .profile .bash_profile; do echo 'echo PLANTED' > ~/$f; done").status,
      0);
  EXPECT_EQ(box.sh("exit 0").status, 0);
  json fresh = box.result("echo hello; shopt login_shell | grep -c on$");
  EXPECT_EQ(fresh["stdout"], "hello\n0\n");
  EXPECT_TRUE(fresh["shell_restarted"]);
}

// The guest leaves the processor of whoever asks; nobody loses one by that.
TEST_P(Shell, ProcessorsStayAsTheyWere) {
  Box box(GetParam());
  const std::string guest = box.exec({"grep", "Cpus_allowed:", "/proc/1/status"}).out;
  const std::string own = box.exec({"grep", "Cpus_allowed:", "/proc/self/status"}).out;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(box.sh("grep -h Cpus_allowed: /proc/1/status /proc/$$/status").out, guest + own);
  }
}

// R30, R36, R47
TEST_P(Shell, FolderStaysAndIsReported) {
  Box box(GetParam());
  EXPECT_EQ(box.result("true")["cwd"], "/workspace");
  EXPECT_EQ(box.result("cd /tmp")["cwd"], "/tmp");
  EXPECT_EQ(box.sh("pwd").out, "/tmp\n");
  EXPECT_EQ(box.sh("cat > summary.txt <<'EOF'\nit's $HOME \"quoted\"\nEOF").status, 0);
  EXPECT_EQ(box.sh("cat /tmp/summary.txt").out, "it's $HOME \"quoted\"\n");
}

// R36, B-56
TEST_P(Shell, OddFolderNamesAreReportedWhole) {
  Box box(GetParam());
  for (const std::string name :
       {"a b", "a\nb", "'", "$(id)", "\n", "*", "-e", "gr\xc3\xbc\xc3\x9f"}) {
    Run run = box.sh("d=$(cat; printf x); mkdir -p -- \"/tmp/e/${d%x}\"; cd -- \"/tmp/e/${d%x}\"",
                     {"--json", "--stdin"}, {.input = name, .timeout_seconds = 10});
    json there = json::parse(run.out, nullptr, false);
    ASSERT_TRUE(there.is_object()) << run.out << run.err << (run.timed_out ? "no end" : "");
    EXPECT_EQ(there["cwd"], "/tmp/e/" + name);
    EXPECT_EQ(box.sh("echo next").out, "next\n");
  }
}

// R31, R32, R33, R34
TEST_P(Shell, VariablesDescriptorsJobsAndFunctionsStay) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("export A=1; B=2; arr=(x y); f() { echo \"f:$1\"; }; alias hi='echo hello';"
                   "shopt -s expand_aliases; exec 7>/workspace/f; sleep 30 & set -o noglob")
                .status,
            0);
  EXPECT_EQ(box.sh("echo $A $B ${arr[1]}; printenv A").out, "1 2 y\n1\n");
  EXPECT_EQ(box.sh("f x; hi").out, "f:x\nhello\n");
  EXPECT_EQ(box.sh("echo hi >&7; cat /workspace/f").out, "hi\n");
  EXPECT_NE(box.sh("jobs").out.find("Running"), std::string::npos);
  EXPECT_EQ(box.sh("kill %1; wait %1; echo $?").out, "143\n");
  EXPECT_EQ(box.sh("echo *").out, "*\n");
}

// R35, B-57
TEST_P(Shell, LastStatusIsSeenByTheNextCommand) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("false").status, 1);
  EXPECT_EQ(box.sh("echo $?").out, "1\n");
  EXPECT_EQ(box.sh("echo $?").out, "0\n");
  EXPECT_EQ(box.sh("(exit 42)").status, 42);
  EXPECT_EQ(box.sh("echo $?; true").out, "42\n");
}

// R37, B-26, B-27
TEST_P(Shell, EndIsFoundWhateverIsPrinted) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("printf abc").out, "abc");
  EXPECT_EQ(box.sh("printf 'x$ '").out, "x$ ");
  EXPECT_EQ(box.sh("printf ''").out, "");
  const std::string random = box.sh("head -c 1M /dev/urandom > /tmp/r; cat /tmp/r").out;
  EXPECT_EQ(random.size(), 1U << 20);
  EXPECT_TRUE(random == box.exec({"cat", "/tmp/r"}).out);
  EXPECT_EQ(box.sh("printf '__EXIT__0\\n__DONE__\\n\\0\\1\\2'").out,
            std::string("__EXIT__0\n__DONE__\n\0\1\2", 22));
  EXPECT_EQ(box.sh("echo 42; seq 1 3").out, "42\n1\n2\n3\n");
}

// R38, B-53
TEST_P(Shell, CommandCannotForgeItsEnd) {
  Box box(GetParam());
  const std::vector<std::string> attempts = {
      "cat; for i in {3..1023}; do echo 'exit 0 cwd /forged' >&$i; done 2>/dev/null; false",
      "for f in /proc/$$/fd/* /proc/self/fd/* /proc/$PPID/fd/*; do echo 0 > $f; done 2>/dev/null; "
      "false",
      "python3 -c 'import os\nfor i in range(3, 1024):\n  try: os.write(i, b\"0\\0/forged\\0\")\n"
      "  except OSError: pass\n' ; false",
      "for i in {3..255}; do eval \"exec $i>&-\"; done 2>/dev/null; false",
  };
  for (const std::string& attempt : attempts) {
    Run run = box.sh(attempt, {"--json"}, {.timeout_seconds = 20});
    json result = json::parse(run.out, nullptr, false);
    ASSERT_TRUE(result.is_object()) << attempt << run.out << run.err;
    EXPECT_NE(result["cwd"], "/forged") << attempt;
    EXPECT_NE(result["exit_code"], 0) << attempt << result;
    expect_usable(box, attempt);
  }
}

// R38: the control channel is in no child's table
TEST_P(Shell, ChildrenSeeOnlyTheThreeStreams) {
  Box box(GetParam());
  EXPECT_EQ(
      box.sh("python3 -c 'import os; print(sorted(int(f) for f in os.listdir(\"/proc/self/fd\")"
             " if os.path.exists(\"/proc/self/fd/\" + f)))'")
          .out,
      "[0, 1, 2]\n");
  EXPECT_EQ(box.exec({"python3", "-c",
                      "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')"
                      " if os.path.exists('/proc/self/fd/' + f)))"})
                .out,
            "[0, 1, 2]\n");
}

// R39, B-52
TEST_P(Shell, InputIsEmptyUnlessGiven) {
  Box box(GetParam());
  Run cat = box.sh("cat", {}, {.input = "not for it", .timeout_seconds = 10});
  EXPECT_EQ(cat.out, "");
  EXPECT_EQ(cat.status, 0);
  EXPECT_NE(box.sh("read x").status, 0);
  EXPECT_EQ(box.sh("head -c1; python3 -c 'import sys; print(len(sys.stdin.read()))'").out, "0\n");
  EXPECT_EQ(
      box.sh("cat; read y; echo \"[$y]\"", {"--stdin"}, {.input = "given", .timeout_seconds = 10})
          .out,
      "given[]\n");
  expect_usable(box, "read");
}

// R40
TEST_P(Shell, CommandTextArrivesIntact) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("echo 'single' \"double\" `echo back` $(echo sub) \\\\ '$HOME'").out,
            "single double back sub \\ $HOME\n");
  EXPECT_EQ(box.sh("cat <<'A' <<'B'\nfirst\nA\nsecond\nB").out, "second\n");
  EXPECT_EQ(box.sh("if true\nthen\n  echo one\nfi\n\n# a comment").out, "one\n");
  EXPECT_EQ(box.sh("echo \xff\xfe").out, "\xff\xfe\n");
  // The kernel gives one word of a command line 128 KiB.
  EXPECT_EQ(box.sh("x='" + std::string(120'000, 'y') + "'; echo ${#x}").out, "120000\n");
  EXPECT_EQ(box.sh("").status, 0);
  EXPECT_EQ(box.sh("# nothing").status, 0);
}

// R40: more than a word of the command line holds
TEST_P(Shell, CommandCanComeFromTheStandardInput) {
  Box box(GetParam());
  const std::string text = "x='" + std::string(2'000'000, 'y') + "'; echo ${#x}; cat; (exit 3)";
  Run run = carrel({"sh", box.id(), "-"}, {.input = text});
  EXPECT_EQ(run.out, "2000000\n") << run.err;
  EXPECT_EQ(run.status, 3);
  EXPECT_EQ(carrel({"sh", box.id(), "-"}, {.input = ""}).status, 0);
  EXPECT_EQ(box.sh("echo ${#x}").out, "2000000\n");
  EXPECT_EQ(carrel({"sh", box.id(), "-"}, {.input = std::string(4U << 20, '#')}).status, 125);
  EXPECT_EQ(carrel({"sh", "--stdin", box.id(), "-"}, {.input = "true"}).status, 125);
}

// R40
TEST_P(Shell, UnbalancedQuoteIsTheCommandsFailure) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("A=kept").status, 0);
  for (const std::string text :
       {"echo 'open", "echo \"open", "if true", "cat <<X", "echo $(", "}"}) {
    json result = box.result(text);
    if (text != "cat <<X") {
      EXPECT_NE(result["exit_code"], 0) << text;
      EXPECT_NE(result["stderr"], "") << text;
    }
    EXPECT_FALSE(result["timed_out"]) << text;
  }
  EXPECT_EQ(box.result("echo 'open")["exit_code"], 2);
  json next = box.result("echo $A");
  EXPECT_EQ(next["stdout"], "kept\n");
  EXPECT_FALSE(next["shell_restarted"]);
}

// R41, B-31, B-55
TEST_P(Shell, DeathOfTheShellIsToldOnceAndNothingRunsTwice) {
  Box box(GetParam());
  struct Case {
    std::string end;
    int status;
  };
  for (const Case& one : {Case{"exit 3", 3}, Case{"exec bash -c 'exit 5'", 5},
                          Case{"kill -9 $$", 137}, Case{"set -e; false; echo not reached", 1},
                          Case{"exit", 0}, Case{"exec sh -c 'kill -9 $$'", 137}}) {
    json result = box.result("rm -f /workspace/n; echo x >> /workspace/n; " + one.end);
    EXPECT_EQ(result["exit_code"], one.status) << one.end << result;
    EXPECT_EQ(result["stdout"], "") << one.end;
    json next = box.result("cat /workspace/n; pwd; set +eu");
    EXPECT_EQ(next["stdout"], "x\n/workspace\n") << one.end;
    EXPECT_TRUE(next["shell_restarted"]) << one.end;
    EXPECT_FALSE(box.result("true")["shell_restarted"]) << one.end << ": told once";
  }
}

// R42, B-54, B-57
TEST_P(Shell, NoCommandBreaksTheNext) {
  const std::vector<std::string> texts = {
      "exec >/dev/null",
      "exec 1>&-",
      "exec 2>&-",
      "exec 0<&-",
      "exec >/dev/full",
      "printf() { echo hacked; }; builtin() { :; }; eval() { :; }; command() { :; }; "
      "read() { :; }; exec() { :; }; cd() { :; }; pwd() { echo /; }; test() { :; }",
      "set -e",
      "set -eu -o pipefail",
      "set -x",
      "set -v",
      "set -f",
      "set -o posix",
      "readonly A=1 PWD OLDPWD IFS PATH BASHPID 2>/dev/null",
      "PATH=/nowhere",
      "IFS=abcdefgh",
      "trap 'echo trapped' DEBUG",
      "trap 'echo bye' EXIT",
      "trap 'echo err' ERR",
      "trap '' CHLD",
      "trap 'echo return' RETURN; set -T",
      "enable -n eval read printf echo",
      "shopt -s extdebug",
      "PROMPT_COMMAND='echo prompt'; PS0=x; PS4=y",
      "ulimit -f 0",
      "ulimit -n 10",
      "ulimit -c unlimited",
      "ulimit -v 100000",
      "unset PATH HOME PWD",
      "declare -i x; declare -r HOME",
      "cd /tmp && mkdir d && cd d && rmdir ../d",
      "POSIXLY_CORRECT=1",
      "BASH_ENV=/dev/zero; ENV=/dev/zero",
      "set -o noclobber",
      "exec 3>&- 4>&- 5>&- 9>&- 10>&- 63>&- 255>&-",
      "coproc cat",
      "suspend -f",
      "set -n",
      "umask 777",
      "stty -echo",
      "history -c; set +o history",
      "wait",
      "disown -a",
      "while read -r line; do :; done",
      "yes | head -c 300000 >&2"};
  std::unique_ptr<Box> box;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    // A shell for each; a sandbox has a handful of them.
    if (i % 8 == 0) {
      box = std::make_unique<Box>(GetParam());
    }
    const std::vector<std::string> options = {"--session", "s" + std::to_string(i), "--timeout",
                                              "5"};
    Run run = box->sh(texts[i], options);
    EXPECT_FALSE(run.timed_out) << texts[i];
    Run next = box->sh("/bin/echo ok", options);
    // Traps and -x speak up, as they would on a terminal; the output must be there and be whole.
    EXPECT_NE(next.out.find("ok\n"), std::string::npos) << texts[i] << ": " << next.out << next.err;
    EXPECT_EQ(next.status, 0) << texts[i] << next.err;
    EXPECT_EQ(box->sh("(exit 9)", options).status, 9) << texts[i];
  }
}

// R44: more shells than a sandbox can have are refused by name, and those there are stay
TEST_P(Shell, TooManySessionsAreRefusedClearly) {
  Box box(GetParam(), {"--pids", "500"});
  Run refused;
  for (int i = 0; i < 100 && refused.status <= 0; ++i) {
    refused = box.sh("true", {"--session", "s" + std::to_string(i)});
  }
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "session"));
  EXPECT_EQ(box.sh("echo ok", {"--session", "s0"}).out, "ok\n");
}

// R43, B-29, B-54
TEST_P(Shell, TimeoutEndsTheCommandAndKeepsTheShell) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("A=kept; cd /tmp").status, 0);
  Run run = box.sh("echo a; sleep 600 & sleep 600", {"--timeout", "1", "--json"});
  EXPECT_LT(run.duration, patient(seconds(3)));
  EXPECT_EQ(run.status, 124);
  json result = json::parse(run.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << run.out << run.err;
  EXPECT_TRUE(result["timed_out"]);
  EXPECT_EQ(result["stdout"], "a\n");
  for (const HostProcess& process : descendants()) {
    EXPECT_NE(process.name, "sleep");
  }
  json next = box.result("echo ok");
  EXPECT_EQ(next["stdout"], "ok\n");
  if (!next["shell_restarted"].get<bool>()) {
    EXPECT_EQ(box.sh("echo $A $PWD").out, "kept /tmp\n");
  }
}

// R43, R83
TEST_P(Shell, TimeoutEndsWhatDoesNotWantToEnd) {
  Box box(GetParam());
  for (const std::string text :
       {"trap '' TERM INT HUP; while :; do :; done", "while :; do echo .; done",
        "(trap '' TERM; setsid sleep 600 &) ; read < /dev/zero; sleep 600", "exec sleep 600",
        "cat /dev/zero > /dev/null"}) {
    Run run = box.sh(text, {"--timeout", "500ms"}, {.timeout_seconds = 20});
    EXPECT_EQ(run.status, 124) << text;
    EXPECT_LT(run.duration, patient(seconds(4))) << text;
    expect_usable(box, text);
  }
}

// R44, B-61
TEST_P(Shell, ConcurrentCommandsAreOneAfterTheOther) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("n=0").status, 0);
  std::vector<std::thread> threads;
  std::vector<Run> runs(20);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    threads.emplace_back([&, i] {
      runs[i] =
          box.sh("n=$((n+1)); printf 'token-%s-' " + std::to_string(i) + "; sleep 0.02; echo end");
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].out, "token-" + std::to_string(i) + "-end\n") << runs[i].err;
    EXPECT_EQ(runs[i].status, 0);
  }
  EXPECT_EQ(box.sh("echo $n").out, "20\n");
}

// A second command that cannot wait for the first as long as that takes is told so.
TEST_P(Shell, BusyShellIsSaidInOneLine) {
  Box box(GetParam());
  Process first(launch({"sh", box.id(), "echo up; sleep 600"}));
  ASSERT_TRUE(first.wait_for_output("up", seconds(10)));
  Run second = box.sh("echo ran", {"--timeout", "500ms"}, {.timeout_seconds = 20});
  EXPECT_TRUE(second.status == 124 || second.status == 125) << second.status;
  EXPECT_TRUE(says_one_line(second, "busy"));
  EXPECT_LT(second.duration, patient(seconds(3)));
  first.send(SIGINT);
  EXPECT_FALSE(first.wait(seconds(5)).timed_out);
  expect_usable(box, "a busy shell");
}

// A second command on a busy shell waits for it, and a separate process does not.
TEST_P(Shell, BusyShellKeepsItsCommandAndServesTheNextAfterIt) {
  Box box(GetParam());
  Process first(launch({"sh", box.id(), "echo up; sleep 1; echo first"}));
  ASSERT_TRUE(first.wait_for_output("up", seconds(10)));
  EXPECT_EQ(box.exec({"echo", "beside"}).out, "beside\n");
  Run second = box.sh("echo second");
  EXPECT_EQ(second.out, "second\n") << second.err;
  EXPECT_EQ(first.wait(seconds(5)).out, "up\nfirst\n");
}

// R44: one shell for each name
TEST_P(Shell, SessionsAreApart) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("A=main; cd /tmp").status, 0);
  EXPECT_EQ(box.sh("echo [$A] $PWD", {"--session", "two"}).out, "[] /workspace\n");
  EXPECT_NE(box.sh("echo $$", {"--session", "two"}).out, box.sh("echo $$").out);
  EXPECT_EQ(box.sh("echo $A").out, "main\n");
}

// R45, B-58
TEST_P(Shell, LateOutputOfAJobIsNotTheNextCommands) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("(sleep 0.3; echo LATE; echo LATE >&2) & echo now").out, "now\n");
  json next = box.result("sleep 0.8; echo next");
  EXPECT_EQ(next["stdout"], "next\n");
  EXPECT_EQ(next["stderr"], "");
}

// R46
TEST_P(Shell, SeparateProcessDoesNotSeeTheShell) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("cd /tmp; export A=1").status, 0);
  EXPECT_EQ(box.exec({"bash", "-c", "echo $PWD [$A]"}).out, "/workspace []\n");
}

// R48
TEST_P(Shell, StartsInTheWorkFolderMadeIfAbsent) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("pwd").out, "/workspace\n");
  Box other(GetParam(), {"--workdir", "/workspace/made/deep"});
  EXPECT_EQ(other.sh("pwd; touch x && echo writable").out, "/workspace/made/deep\nwritable\n");
  EXPECT_EQ(other.exec({"pwd"}).out, "/workspace/made/deep\n");
}

// R49
TEST_P(Shell, EnvironmentIsDeclaredAndNothingIsInherited) {
  Run made = carrel({"create", "--env", "MINE=1", "--env", "EMPTY="},
                    {.environment = {"HOST_TOKEN=secret", "LC_ALL=xx", "LD_LIBRARY_PATH=/x"}});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string id = made.out.substr(0, 36);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"sh", id, "env"},
        std::vector<std::string>{"exec", id, "--", "env"}}) {
    Run run = carrel(words, {.environment = {"HOST_TOKEN=secret"}});
    std::vector<std::string> names;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) {
      names.push_back(line.substr(0, line.find('=')));
    }
    std::sort(names.begin(), names.end());
    std::erase_if(names, [](const std::string& name) {
      return name == "_" || name == "SHLVL" || name == "PWD" || name == "OLDPWD";
    });
    EXPECT_EQ(names, (std::vector<std::string>{"EMPTY", "HOME", "LANG", "LOGNAME", "MINE", "PATH",
                                               "PIP_RETRIES", "PYTHONUNBUFFERED", "SHELL", "TMPDIR",
                                               "USER", "npm_config_fetch_retries"}));
    EXPECT_EQ(run.out.find("secret"), std::string::npos);
  }
}

// R50, B-60
TEST_P(Shell, LogReadsLikeASession) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("cd /tmp").status, 0);
  EXPECT_EQ(box.sh("whoami").out, "agent\n");
  EXPECT_EQ(box.sh("cat > summary.txt <<'EOF'\nx\nEOF\nfalse").status, 1);
  EXPECT_EQ(box.sh("echo " + std::string(200, 'x')).status, 0);
  Run log = carrel({"logs", box.id()});
  EXPECT_EQ(log.out, "sandbox " + box.id().substr(0, 12) +
                         " started (image host, workspace /workspace)\n"
                         "$ cd /tmp\n"
                         "exit 0, stdout 0 chars, cwd /tmp\n"
                         "$ whoami\n"
                         "exit 0, stdout 5 chars, cwd /tmp\n"
                         "$ cat > summary.txt <<'EOF' ...\n"
                         "exit 1, stdout 0 chars, cwd /tmp\n"
                         "$ echo " +
                         std::string(75, 'x') +
                         " ...\n"
                         "exit 0, stdout 200 chars, cwd /tmp\n");
}

// R51
TEST_P(Shell, EventsAreStructured) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("printf 'gr\\303\\274n\\n'; (exit 4)").status, 4);
  std::vector<json> events = box.events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["event"], "start");
  EXPECT_EQ(events[1]["event"], "command");
  EXPECT_EQ(events[1]["command_bytes"], 32);
  EXPECT_EQ(events[2]["event"], "result");
  EXPECT_EQ(events[2]["sandbox"], box.id());
  EXPECT_EQ(events[2]["exit_code"], 4);
  EXPECT_EQ(events[2]["stdout_chars"], 4);
  EXPECT_EQ(events[2]["cwd"], "/workspace");
}

}  // namespace
}  // namespace carrel::test
