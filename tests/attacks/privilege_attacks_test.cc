#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "attacks/attack_test.h"

// Attacks on the program itself through its environment, its terminal and its processes.
namespace carrel::test {
namespace {

class PrivilegeAttack : public AttackTest {};
CARREL_AS_BOTH(PrivilegeAttack);

TEST_P(PrivilegeAttack, E08_VariablesOfTheHostStayOutside) {
  Options options;
  for (const char* name : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH", "BASH_ENV",
                           "ENV", "PYTHONSTARTUP", "PROMPT_COMMAND", "NODE_OPTIONS",
                           "GIT_SSH_COMMAND", "BASH_FUNC_ls%%", "SSH_AUTH_SOCK", "AWS_SECRET"}) {
    options.environment.push_back(std::string(name) + "=/carrel-probe-value");
  }
  const Run run = attack({"run", "--", "env"}, options);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out.find("carrel-probe-value"), std::string::npos) << run.out;
}

// Given on purpose, they reach the command; the first process does not load anything by them.
TEST_P(PrivilegeAttack, E08_VariablesGivenInsideDoNotReachTheFirstProcess) {
  for (const char* name : {"LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "BASH_ENV", "ENV"}) {
    const Run run = attack(
        {"run", "--env", std::string(name) + "=/workspace/x", "--", "/bin/sh", "-c", "exit 5"});
    EXPECT_EQ(run.status, 5) << name << ": " << run.err;
  }
}

TEST_P(PrivilegeAttack, E16_NothingOfTheHostsHelpersIsSeen) {
  const Run run = script(
      "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
      "ls -d /proc/[0-9]* | wc -l");
  EXPECT_EQ(run.out.find("CARREL_CANARY_TOKEN"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find(place().home(GetParam())), std::string::npos) << run.out;
}

TEST_P(PrivilegeAttack, E06_KillingEverythingEndsOnlyTheCommand) {
  const Run run = script("trap '' TERM; kill -9 -1; kill -STOP 1; kill -9 1; echo alive; exit 4");
  EXPECT_EQ(run.status, 4) << run.err;
  EXPECT_EQ(run.out, "alive\n");
}

TEST_P(PrivilegeAttack, E06_ClosedAndFullDescriptorsStillGiveTheStatus) {
  for (const char* text : {"exec 0<&- 1>&- 2>&-; exit 6",
                           "for i in $(seq 3 255); do eval \"exec $i>&-\"; done; exit 6",
                           "for i in $(seq 3 255); do eval \"exec $i>/dev/full\"; done; exit 6"}) {
    EXPECT_EQ(script(text).status, 6) << text;
  }
}

// The terminal of the session is the sandbox's own; what is typed into it must not reach ours.
TEST_P(PrivilegeAttack, E12_TheSessionsTerminalCannotBeTypedInto) {
  const Launch wanted = launch({"run", "-t", "--", "python3", "-c",
                                "import fcntl,termios,os\n"
                                "for name in ('/dev/tty', '/dev/stdin'):\n"
                                "  fd=os.open(name, os.O_RDWR)\n"
                                "  for request in (termios.TIOCSTI, termios.TIOCSTI | 1 << 32):\n"
                                "    try:\n"
                                "      fcntl.ioctl(fd, request & 0xffffffff, b'x')\n"
                                "      print('OP'+'EN')\n"
                                "    except OSError as error:\n"
                                "      print('refused', error.errno)\n"});
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    std::vector<std::string> words = {wanted.program};
    words.insert(words.end(), wanted.arguments.begin(), wanted.arguments.end());
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    std::vector<std::string> texts = wanted.environment;
    std::vector<char*> environment;
    for (std::string& text : texts) {
      environment.push_back(text.data());
    }
    environment.push_back(nullptr);
    if (wanted.switch_user && (::setresgid(wanted.gid, wanted.gid, wanted.gid) != 0 ||
                               ::setresuid(wanted.uid, wanted.uid, wanted.uid) != 0)) {
      ::_exit(1);
    }
    ::execve(wanted.program.c_str(), arguments.data(), environment.data());
    ::_exit(1);
  }
  ASSERT_GT(child, 0);
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 1; n > 0;) {
    n = ::read(terminal, buffer.data(), buffer.size());
    out.append(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  EXPECT_NE(out.find("refused 1"), std::string::npos) << out;
  EXPECT_EQ(out.find("OPEN"), std::string::npos) << out;
}

}  // namespace
}  // namespace carrel::test
