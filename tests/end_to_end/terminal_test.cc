// Sessions of a person at a terminal, and what becomes of one that ends while he types.
#include <csignal>
#include <thread>

#include "support/box.h"
#include "support/fixture.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Terminal : public CarrelTest {
 protected:
  // The program at a terminal of its own.
  [[nodiscard]] Launch at_terminal(std::vector<std::string> arguments) const {
    Launch wanted = launch(std::move(arguments));
    wanted.terminal = true;
    return wanted;
  }

  // A shell of the host at a terminal, in which the program is started.
  [[nodiscard]] Launch host_shell() const {
    Launch wanted = at_terminal({});
    wanted.program = "/bin/sh";
    wanted.environment.push_back("PS1=host> ");
    wanted.environment.push_back("CARREL=" + place().program());
    return wanted;
  }

  static std::string said(const Process& process) { return "it said: " + process.out(); }

  // Starts that command in a shell of the host, types ahead while nobody in the sandbox reads, has
  // `end` end the session, and expects that none of what was typed reached the shell.
  void expect_nothing_runs_on_the_host(const std::string& command,
                                       const std::function<void()>& end) const {
    Process shell(host_shell());
    shell.write(command + " 'stty -echo; echo rea''dy; exec sleep 1000'; echo sta''tus $?\n");
    ASSERT_TRUE(shell.wait_for_output("ready", seconds(20))) << said(shell);
    const std::string line = "echo ran-on-the-host\n";
    EXPECT_GT(shell.type_until_full(line), 4096U);
    end();
    ASSERT_TRUE(shell.wait_for_output("status ", seconds(30))) << said(shell);
    shell.write("\necho la''st\n");
    EXPECT_TRUE(shell.wait_for_output("last", seconds(10))) << said(shell);
    EXPECT_EQ(shell.out().find("ran-on-the-host"), std::string::npos) << said(shell);
    EXPECT_NE(shell.out().find('\a'), std::string::npos) << said(shell);
    EXPECT_NE(shell.out().find("the session in the sandbox is over"), std::string::npos)
        << said(shell);
    shell.write("exit\n");
    EXPECT_EQ(shell.wait(seconds(5)).status, 0);
  }
};
CARREL_AS_BOTH(Terminal);

TEST_P(Terminal, TimeLimitOfASessionIsOneThatWasGiven) {
  Process once(at_terminal({"run", "-t", "--", "bash", "-c", "echo up; read line; exit 7"}));
  ASSERT_TRUE(once.wait_for_output("up", seconds(20))) << said(once);
  once.write("\n");
  EXPECT_EQ(once.wait(seconds(10)).status, 7);
  const Box limited(GetParam(), {"--timeout", "1"});
  Process in_box(at_terminal({"exec", "-t", limited.id(), "--", "sleep", "100"}));
  EXPECT_EQ(in_box.wait(seconds(20)).status, 124) << said(in_box);
  Process given(at_terminal({"run", "-t", "--timeout", "1", "--", "sleep", "100"}));
  EXPECT_EQ(given.wait(seconds(20)).status, 124) << said(given);
  file("carrel.toml", "[run]\ntimeout = 1\n");
  Process configured(at_terminal({"run", "-t", "--", "sleep", "100"}));
  EXPECT_EQ(configured.wait(seconds(20)).status, 124) << said(configured);
}

TEST_P(Terminal, SandboxesOwnDefaultIsNoLimitOfASession) {
  const Box box(GetParam());
  Process session(at_terminal({"exec", "-t", box.id(), "--", "bash", "-c", "echo up; read line"}));
  ASSERT_TRUE(session.wait_for_output("up", seconds(20))) << said(session);
  EXPECT_FALSE(session.says_within(seconds(2), "timed out"));
  session.write("\n");
  EXPECT_EQ(session.wait(seconds(10)).status, 0);
}

TEST_P(Terminal, WhatIsTypedAheadIsThrownAwayAtTheTimeLimit) {
  expect_nothing_runs_on_the_host("$CARREL run -t --timeout 5 -- bash -c", [] {});
  const Box box(GetParam());
  expect_nothing_runs_on_the_host("$CARREL exec -t --timeout 5 " + box.id() + " -- bash -c", [] {});
}

TEST_P(Terminal, WhatIsTypedAheadIsThrownAwayWhenTheSandboxIsGone) {
  const Box box(GetParam());
  expect_nothing_runs_on_the_host("$CARREL exec -t " + box.id() + " -- bash -c",
                                  [&] { EXPECT_EQ(box.remove({"--force"}).status, 0); });
}

TEST_P(Terminal, WhatIsTypedAheadIsThrownAwayWhenTheStreamBreaks) {
  const Box box(GetParam());
  expect_nothing_runs_on_the_host("$CARREL exec -t " + box.id() + " -- bash -c", [&] {
    const pid_t guest = box.first_process();
    ASSERT_GT(guest, 1);
    ::kill(guest, SIGKILL);
  });
}

TEST_P(Terminal, WhatIsTypedAfterTheCommandLeftIsTheHosts) {
  Process shell(host_shell());
  shell.write("$CARREL run -t -- bash -c 'echo rea''dy; read line; exit 3'; echo sta''tus $?\n");
  ASSERT_TRUE(shell.wait_for_output("ready", seconds(20))) << said(shell);
  shell.write("go\n");
  ASSERT_TRUE(shell.wait_for_output("status 3", seconds(20))) << said(shell);
  EXPECT_EQ(shell.out().find('\a'), std::string::npos) << said(shell);
  EXPECT_EQ(shell.out().find("session"), std::string::npos) << said(shell);
  shell.write("exit\n");
  EXPECT_EQ(shell.wait(seconds(5)).status, 0);
}

TEST_P(Terminal, WhoeverTypesEndsTheCommandHimself) {
  Process session(at_terminal({"run", "-t", "--", "sh", "-c", "echo up; exec sleep 1000"}));
  ASSERT_TRUE(session.wait_for_output("up", seconds(20))) << said(session);
  session.write("\x03");
  EXPECT_EQ(session.wait(seconds(10)).status, 130) << said(session);
  EXPECT_EQ(session.out().find("session"), std::string::npos) << said(session);
}

TEST_P(Terminal, WithoutOneASessionIsRefusedAndDoesNotHang) {
  const Box box(GetParam());
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "-t", "--", "cat"},
                                                {"exec", "-t", box.id(), "--", "cat"},
                                                {"attach", box.id()}}) {
    const Run run = carrel(words, {.input = "", .timeout_seconds = 20});
    EXPECT_FALSE(run.timed_out) << words[0];
    EXPECT_EQ(run.status, 125) << words[0];
    EXPECT_TRUE(says_one_line(run, "needs a terminal")) << words[0] << run.err;
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "-t", "--no-stdin", "--", "tty"},
        {"exec", "-t", "--no-stdin", box.id(), "--", "tty"}}) {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << run.err;
    EXPECT_NE(run.out.find("/dev/pts/"), std::string::npos) << words[0] << run.out;
  }
  const Run limited = carrel({"run", "-t", "--no-stdin", "--timeout", "1", "--", "cat"});
  EXPECT_EQ(limited.status, 124) << limited.err;
}

}  // namespace
}  // namespace carrel::test
