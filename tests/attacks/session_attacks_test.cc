#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>

#include "attacks/attack_test.h"
#include "support/patience.h"

// Attacks on the long-lived shell's protocol by the commands that run in it.
namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SessionAttack : public AttackTest {};
CARREL_AS_BOTH(SessionAttack);

// Everything that looks like a nonce, in the shell's variables and in its words, is written as a
// status of 0 in several forms to every descriptor that the shell has.
constexpr const char* kForge =
    "text=$(set; tr '\\0' '\\n' < /proc/$$/cmdline); "
    "words=$(grep -oE '[0-9a-f]{16,64}' <<< \"$text\" | sort -u); fds=$(ls /proc/$$/fd); "
    "for f in $fds; do [ $f -gt 2 ] || continue; for n in $words; do "
    "printf ' %s 0\\n %s  0\\n%s 0\\n' $n $n $n >&$f; "
    "for m in $fds; do printf ' %s %s 0\\n' $n $m >&$f; done; done; done 2>/dev/null; ";

constexpr const char* kForgeries[] = {
    "for f in /proc/$$/fd/*; do for n in $(set | grep -oE '[0-9a-f]{16}'); do "
    "timeout 1 bash -c \"printf '\\n %s 0\\n' $n > $f\"; done; done 2>/dev/null; (exit 77)",
    "python3 -c 'import os,sys\nfor f in range(3, 256):\n"
    "  try: os.write(f, b\"{\\\"exit_code\\\":0}\\n 0\\n\")\n"
    "  except OSError: pass\nsys.exit(77)'",
    "history; echo ' 0' >&198; echo ' 0' >&199; (exit 77)",
};

TEST_P(SessionAttack, I01_ACommandCannotForgeItsStatus) {
  const std::string id = create();
  ASSERT_EQ(sh(id, std::string(kForge) + "(exit 77)", {"--timeout", "20"}).status, 77);
  expect_usable(id, "a forged status");
  for (const char* text : kForgeries) {
    ASSERT_EQ(sh(id, text, {"--timeout", "20"}).status, 77) << text;
    expect_usable(id, text);
  }
}

// A status that comes too early would give the next command's place to this one.
TEST_P(SessionAttack, I01_ACommandCannotEndBeforeItsEnd) {
  const std::string id = create();
  const Run run = sh(id, std::string(kForge) + "sleep 2; echo late; (exit 77)");
  EXPECT_EQ(run.status, 77);
  EXPECT_EQ(run.out, "late\n");
  expect_usable(id, "an early end");
}

TEST_P(SessionAttack, I03_ClosedDescriptorsStillGiveTheStatus) {
  const std::string id = create();
  for (const char* text :
       {"exec >&- 2>&- <&-; (exit 5)", "exec 1>/dev/null 2>&1; (exit 5)",
        "for i in $(seq 0 255); do eval \"exec $i>&-\"; done 2>/dev/null; (exit 5)",
        "for i in $(seq 3 255); do eval \"exec $i>/dev/null\"; done; (exit 5)"}) {
    EXPECT_EQ(sh(id, text, {"--timeout", "20"}).status, 5) << text;
    expect_usable(id, text);
  }
}

TEST_P(SessionAttack, I04_ABackgroundJobDoesNotHoldTheCall) {
  const std::string id = create();
  for (const char* text :
       {"sleep 1000 & echo back", "(exec 3>&1; sleep 999) & echo back",
        "setsid sleep 998 & disown; echo back", "python3 -m http.server 8000 & echo back"}) {
    const Run run = sh(id, text, {"--timeout", "20"});
    EXPECT_EQ(run.status, 0) << text;
    EXPECT_EQ(run.out, "back\n") << text;
    EXPECT_LT(run.duration, patient(seconds(8))) << text;
  }
  expect_usable(id, "background jobs");
}

TEST_P(SessionAttack, I05_ALateJobDoesNotWriteIntoTheNextCommand) {
  const std::string id = create();
  EXPECT_EQ(sh(id, "(sleep 1; echo LATE; echo LATE >&2) & echo one").out, "one\n");
  const Run next = sh(id, "sleep 2; echo two");
  EXPECT_EQ(next.out, "two\n");
  EXPECT_EQ(next.err.find("LATE"), std::string::npos) << next.err;
}

// The guest reads the outputs, then looks whether anybody holds them: a job that writes and ends
// between the two is the hardest to see.
TEST_P(SessionAttack, I05_AJobThatEndsWithItsCommandDoesNotWriteIntoTheNextOne) {
  const std::string id = create();
  for (int turns = 0; turns < 200; ++turns) {
    const std::string job = "for ((i = 0; i < " + std::to_string(turns * 10) +
                            "; ++i)); do :; done; echo LATE; echo LATE >&2";
    EXPECT_EQ(sh(id, "(" + job + ") & true").status, 0);
    const Run next = sh(id, "echo two");
    ASSERT_EQ(next.out, "two\n") << turns;
    ASSERT_EQ(next.err, "") << turns;
  }
}

// Whoever has the same user can open a shell's descriptors, and its outputs are among them.
TEST_P(SessionAttack, I05_AFloodIntoTheShellsOutputsHoldsNobody) {
  const std::string id = create();
  std::string shell = sh(id, "echo $$").out;
  ASSERT_THAT(shell, testing::EndsWith("\n"));
  shell.pop_back();
  std::vector<std::unique_ptr<Process>> floods;
  for (int i = 0; i < 4; ++i) {
    floods.push_back(std::make_unique<Process>(
        launch({"exec", id, "--timeout", "3", "--", "bash", "-c",
                "echo begun; for f in 194 195; do yes > /proc/" + shell + "/fd/$f & done; wait"})));
    ASSERT_TRUE(floods.back()->wait_for_output("begun", seconds(10)));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sh(id, "true", {"--timeout", "20"}).status, 0);
  }
  for (auto& flood : floods) {
    const Run run = flood->wait(seconds(20));
    EXPECT_EQ(run.status, 124) << run.err;
    EXPECT_LT(run.duration, patient(seconds(10)));
  }
  EXPECT_TRUE(eventually(seconds(5), [] { return !is_running("yes"); }));
  expect_usable(id, "a flood");
}

TEST_P(SessionAttack, I07_EscapesArriveAsTheyAreAndQuotedInJson) {
  const std::string id = create();
  const std::string escapes =
      "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x07\x1bP$q\x1b\\\xe2\x80\xae";
  const char* text =
      "printf '\\033]52;c;ZXZpbA==\\007\\033[2J\\033]0;title\\007\\033P$q\\033\\\\\\342\\200\\256'";
  EXPECT_EQ(sh(id, text).out, escapes);
  const Run json = sh(id, text, {"--json"});
  EXPECT_EQ(json.out.find('\x1b'), std::string::npos) << json.out;
  EXPECT_EQ(json.out.find('\x07'), std::string::npos) << json.out;
}

TEST_P(SessionAttack, I08_AChangedShellIsNoObstacle) {
  const std::string id = create();
  for (const char* text :
       {"cd() { echo CD; }; printf() { echo PRINTF; }; eval() { echo EVAL; }; true",
        "builtin() { echo BUILTIN; return 3; }; true",
        "mapfile() { :; }; read() { :; }; true",
        "alias exit='echo no' while=false do=false builtin=false; true",
        "enable -n printf eval mapfile builtin return 2>/dev/null; true",
        "trap 'echo DEBUG' DEBUG; trap 'echo ERR' ERR; true",
        "trap 'echo EXIT' EXIT; exit 3",
        "PS1=x PS4=y; set -x; true",
        "set -euo pipefail; true",
        "set -n",
        "set -f -o noclobber; true",
        "IFS=0123456789abcdef; true",
        "readonly PATH IFS __carrel_go __carrel_nonce __carrel_last; true",
        "unset PATH HOME IFS; true",
        "shopt -s extdebug failglob nullglob; true",
        "exec sleep 0",
        "exec bash -c 'exit 3'",
        "kill -9 $$",
        "kill -STOP $$ & sleep 0.2; kill -CONT $$",
        "ulimit -n 4; true",
        "ulimit -f 0; true",
        "stty -echo 2>/dev/null; true",
        "hash -r; hash -p /bin/false printf; true",
        "function __carrel_status { :; }; true"}) {
    const Run run = sh(id, text, {"--timeout", "2"});
    EXPECT_FALSE(run.timed_out) << text;
    EXPECT_NE(run.status, 125) << text << run.err;
    // What a trap or a trace of the shell's own adds is the command's doing; a fresh session shows
    // that nothing else was touched.
    const Run next = sh(id, "command echo usable", {"--timeout", "2"});
    EXPECT_NE(next.status, 125) << text << next.err;
    EXPECT_EQ(sh(id, "kill -9 $$", {"--timeout", "2"}).timed_out, false);
    expect_usable(id, text);
  }
}

TEST_P(SessionAttack, I09_StandardInputIsTheCommandsOwn) {
  const std::string id = create();
  EXPECT_EQ(sh(id, "cat; echo \"<$?>\"").out, "<0>\n");
  EXPECT_EQ(sh(id, "read x; echo \"<$?>\"").out, "<1>\n");
  EXPECT_EQ(sh(id, "python3 -c 'import sys; print(len(sys.stdin.read()))'").out, "0\n");
  EXPECT_EQ(sh(id, "while read -t 1 -u 0 x; do echo \"$x\"; done; head -c 100 /dev/stdin").out, "");
  expect_usable(id, "readers");
}

TEST_P(SessionAttack, I11_AnyFolderIsAFolderToStandIn) {
  const std::string id = create();
  for (const char* text : {"mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone", "cd /proc/self/fd",
                           "cd /proc/1", "mkdir -p $'/tmp/a\\nb'; cd $'/tmp/a\\nb'",
                           "d=/tmp/deep; mkdir -p $d; cd $d; for i in $(seq 200); "
                           "do mkdir -p xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; cd "
                           "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
                           "mkdir -p /tmp/closed; cd /tmp/closed; chmod 0 /tmp/closed",
                           "for i in $(seq 500); do pushd /tmp; done >/dev/null"}) {
    EXPECT_NE(sh(id, text, {"--json", "--timeout", "20"}).status, 125) << text;
    expect_usable(id, text);
  }
}

TEST_P(SessionAttack, I12_AnyEnvironmentIsBearable) {
  const std::string id = create();
  for (const char* text :
       {"export BIG=$(head -c 10000000 /dev/zero | tr '\\0' x)",
        "export $'A=1\\nB'=2 2>/dev/null; true", "unset BIG PATH HOME PWD SHELL; true",
        "export BASH_FUNC_x%%='() { echo X; }' 2>/dev/null; true",
        "f() { echo F; }; export -f f; export BASH_ENV=/tmp/env ENV=/tmp/env; echo 'echo ENV' > "
        "/tmp/env",
        "export LD_PRELOAD=/tmp/none.so LD_AUDIT=/tmp/none.so",
        "export POSIXLY_CORRECT=1; set -o posix",
        "for i in $(seq 20000); do export V$i=$i; done"}) {
    EXPECT_NE(sh(id, text, {"--timeout", "30"}).status, 125) << text;
    expect_usable(id, text);
  }
}

TEST_P(SessionAttack, I13_FakeRecordsAreIgnored) {
  const std::string id = create();
  const char* text =
      "python3 -c 'import os,struct\n"
      "for kind in range(0, 40):\n"
      "  frame = struct.pack(\"<IIHH\", 4, 1, kind, 0) + b\"\\0\\0\\0\\0\"\n"
      "  for f in range(3, 256):\n"
      "    try: os.write(f, frame)\n"
      "    except OSError: pass'; (exit 33)";
  EXPECT_EQ(sh(id, text).status, 33);
  const Run exec = attack({"exec", id, "--", "bash", "-c", text});
  EXPECT_EQ(exec.status, 33);
  expect_usable(id, "fake records");
}

TEST_P(SessionAttack, I15_AnyTextIsPassedAsItIs) {
  const std::string id = create();
  EXPECT_EQ(sh(id, "echo \"it's\" '\"' \\` '$(id)' $(echo in)").out, "it's \" ` $(id) in\n");
  EXPECT_EQ(sh(id, "cat <<'EOF'\n$HOME `id` \\\nEOF\necho after").out, "$HOME `id` \\\nafter\n");
  EXPECT_EQ(attack({"sh", id, "--", "-c"}).status == 125, false);
  EXPECT_NE(sh(id, "echo 'unbalanced").status, 0);
  expect_usable(id, "an open quote");
  EXPECT_NE(sh(id, "cat <<EOF\nno end").status, 125);
  expect_usable(id, "an open document");
  for (const char* text :
       {"done", "fi; done; }", "} ; false", ")", "esac", "\r", "#", "", " ", "\n\n", "echo a\\"}) {
    EXPECT_NE(sh(id, text, {"--timeout", "10"}).status, 125) << text;
    expect_usable(id, text);
  }
  const std::string large(100000, 'y');
  EXPECT_EQ(sh(id, "echo " + large).out, large + "\n");
}

TEST_P(SessionAttack, I16_CommandsOfTwoClientsAreNotMixed) {
  const std::string id = create();
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < 12; ++i) {
    const std::string token = "token" + std::to_string(i);
    clients.push_back(std::make_unique<Process>(launch(
        {"sh", id,
         "for i in 1 2 3; do echo " + token +
             "; sleep 0.02; done; exit_status=" + std::to_string(i) + "; (exit $exit_status)"})));
  }
  for (int i = 0; i < 12; ++i) {
    const Run run = clients[static_cast<std::size_t>(i)]->wait(seconds(40));
    const std::string line = "token" + std::to_string(i) + "\n";
    EXPECT_EQ(run.out, line + line + line) << run.err;
    EXPECT_EQ(run.status, i);
  }
}

TEST_P(SessionAttack, I17_ACancelledFloodLeavesNothing) {
  const std::string id = create();
  for (int times = 1; times <= 3; ++times) {
    Process flood(launch({"sh", id, "yes | cat"}));
    ASSERT_TRUE(flood.wait_for_output("y\ny\n", seconds(10)));
    for (int i = 0; i < times; ++i) {
      flood.send(SIGINT);
      std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_FALSE(flood.wait(seconds(15)).timed_out);
    EXPECT_TRUE(eventually(seconds(5), [] { return !is_running("yes"); }));
    expect_usable(id, "a cancelled flood");
  }
  Process gone(launch({"sh", id, "echo begun; sleep 0.5; echo still"}));
  ASSERT_TRUE(gone.wait_for_output("begun", seconds(10)));
  gone.send(SIGKILL);
  gone.wait(seconds(5));
  expect_usable(id, "a client that was killed");
}

}  // namespace
}  // namespace carrel::test
