// What goes wrong outside the command: one clear line, the right status, nothing left behind.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/box.h"
#include "support/fixture.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Errors : public CarrelTest {
 protected:
  void expect_refused(const std::vector<std::string>& words, const std::string& text) const {
    Run run = carrel(words);
    EXPECT_EQ(run.status, 125) << words.back();
    EXPECT_TRUE(says_one_line(run, text)) << words[words.size() > 1 ? 1 : 0];
  }
};
CARREL_AS_BOTH(Errors);

// R206
TEST_P(Errors, JsonTellsTheKindOfTheError) {
  struct Case {
    std::vector<std::string> words;
    std::string code;
  };
  std::vector<Case> cases = {
      {{"run", "--json", "--memory", "0", "--", "true"}, "invalid"},
      {{"run", "--json", "--no-such-option", "--", "true"}, "invalid"},
      {{"run", "--json", "--tier", "high", "--", "true"}, "unavailable"},
      {{"code", "--json", "nowhere.py"}, "not_found"},
      {{"sh", "--json", "nobody", "true"}, "not_found"},
      {{"create", "--json", "--image", "dir:/nonexistent"}, "not_found"},
  };
  if (!as_root()) {
    cases.push_back({{"run", "--json", "--require", "memory", "--", "true"}, "unsupported"});
  }
  for (const Case& one : cases) {
    Run run = carrel(one.words);
    json object = json::parse(run.out, nullptr, false);
    if (!object.is_object() || !object.contains("error")) {
      ADD_FAILURE() << one.words[2] << " " << one.words[3] << ": " << run.out << run.err;
      continue;
    }
    EXPECT_EQ(object["error"]["code"], one.code) << object;
    EXPECT_NE(object["error"]["message"], "");
    EXPECT_EQ(object["exit_code"], run.status);
    EXPECT_EQ(run.err, "");
  }
}

// R206, R207: a timeout is a result and not an error
TEST_P(Errors, TimeoutIsAResult) {
  json result = json::parse(bash("sleep 600", {"--timeout", "200ms", "--json"}).out);
  EXPECT_TRUE(result["timed_out"]);
  EXPECT_FALSE(result.contains("error"));
  EXPECT_NE(result["reason"], "");
}

TEST_P(Errors, NothingAskedIsExplained) {
  Run nothing = carrel({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_NE(nothing.err.find("Usage:"), std::string::npos);
  EXPECT_EQ(nothing.out, "");
  expect_refused({"run"}, "needs a command");
  expect_refused({"run", "--"}, "needs a command");
  expect_refused({"run", "--", ""}, "empty");
  expect_refused({"code"}, "FILE");
  expect_refused({"exec"}, "ID");
}

TEST_P(Errors, UnknownWordsAreNamedWithTheNearest) {
  Run run = carrel({"rnu", "--", "true"});
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(says_one_line(run, "rnu"));
  expect_refused({"run", "--memroy", "1g", "--", "true"}, "'--memory'");
  expect_refused({"run", "--json=yes", "--", "true"}, "json");
  expect_refused({"run", "-Z", "--", "true"}, "-Z");
}

TEST_P(Errors, ImpossibleLimitsAreRefused) {
  struct Case {
    std::string option;
    std::vector<std::string> values;
  };
  for (const Case& one :
       {Case{"--memory", {"0", "-1", "1.5.2g", "900000g", "1k"}},
        Case{"--cpus", {"0", "-1", "1.5.2", "100000", "nan"}},
        Case{"--pids", {"0", "-1", "1.5", "99999999999", "many"}},
        Case{"--timeout", {"0", "-1", "1.5.2", "100000d", "soon"}},
        Case{"--disk", {"0", "-1", "1.5.2g", "x"}}, Case{"--tmp", {"0", "-1", "1.5.2g", "x"}}}) {
    for (const std::string& value : one.values) {
      expect_refused({"run", one.option, value, "--", "echo", "ran"}, one.option.substr(2));
    }
  }
}

TEST_P(Errors, MissingProgramsAre127And126) {
  Run missing = carrel({"run", "--", "no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_TRUE(says_one_line(missing, "no-such-program"));
  Run path = carrel({"run", "--", "/no/such/program"});
  EXPECT_EQ(path.status, 127);
  EXPECT_TRUE(says_one_line(path, "/no/such/program"));
  Run denied = carrel({"run", "--", "/etc/passwd"});
  EXPECT_EQ(denied.status, 126);
  EXPECT_TRUE(says_one_line(denied, "Permission denied"));
  Run folder = carrel({"run", "--", "/usr"});
  EXPECT_EQ(folder.status, 126);
  EXPECT_EQ(carrel({"run", "--", "bash", "-c", "no-such-program"}).status, 127);
  Box box(GetParam());
  EXPECT_EQ(box.exec({"no-such-program"}).status, 127);
  EXPECT_EQ(box.exec({"/etc/passwd"}).status, 126);
}

// A working directory that is not there is not a missing program.
TEST_P(Errors, MissingWorkdirIsSaidOrMade) {
  Run run = carrel({"run", "--workdir", "/nope/deep", "--", "pwd"});
  if (run.status == 0) {
    EXPECT_EQ(run.out, "/nope/deep\n");
  } else {
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "/nope/deep"));
  }
}

// What the caller closed must not become the number of something of Carrel's.
TEST_P(Errors, ClosedStandardStreamsAreEmpty) {
  for (const char* closed : {"<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"}) {
    Launch launched = launch({"run", "--", "bash", "-c", "cat; echo out; echo err >&2; exit 7"});
    launched.arguments.insert(
        launched.arguments.begin(),
        {"-c", std::string("exec \"$0\" \"$@\" ") + closed, launched.program});
    launched.program = "/bin/bash";
    Process process(launched);
    process.close_input();
    Run run = process.wait(seconds(20));
    EXPECT_EQ(run.status, 7) << closed << run.err;
  }
}

TEST_P(Errors, WorkdirIsMadeWhereItCanBe) {
  EXPECT_EQ(carrel({"run", "--workdir", "/workspace/a/b", "--", "pwd"}).out, "/workspace/a/b\n");
  Box box(GetParam(), {"--workdir", "/tmp/a/b"});
  EXPECT_EQ(box.exec({"find", "/tmp/a/b", "-printf", "%u\\n"}).out, "agent\n");
  Run run = carrel({"exec", "--workdir", "/none", box.id(), "--", "pwd"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "'/none'"));
}

// It is said by the command that was told of it, and no sandbox is left that could not be used.
TEST_P(Errors, CreateRefusesAWorkdirInWhichNoCommandCouldStart) {
  for (const char* path : {"/nope", "/usr/nope/deep", "/etc/passwd", "/root/x", "/proc/1/root"}) {
    Run run = carrel({"create", "--name", "misplaced", "--workdir", path});
    EXPECT_EQ(run.status, 2) << path;
    EXPECT_EQ(run.out, "") << path;
    EXPECT_TRUE(says_one_line(run, std::string("'") + path + "'"));
  }
  EXPECT_EQ(carrel({"ls", "--json"}).out.find("misplaced"), std::string::npos);
  Run made = carrel({"create", "--name", "misplaced", "--workdir", "/tmp/place"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(carrel({"sh", "misplaced", "pwd"}).out, "/tmp/place\n");
  EXPECT_EQ(carrel({"rm", "misplaced"}).status, 0);
}

// A shell can lose the place that it would start in.
TEST_P(Errors, AWorkdirThatCannotBeMadeAgainIsSaid) {
  Box box(GetParam(), {"--workdir", "/tmp/place"});
  ASSERT_EQ(box.exec({"bash", "-c", "cd /; rmdir /tmp/place; touch /tmp/place"}).status, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"sh", box.id(), "pwd"}, {"exec", box.id(), "--", "pwd"}}) {
    Run run = carrel(words);
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "'/tmp/place'"));
  }
}

TEST_P(Errors, LargeCommandsAndEnvironmentsWorkOrAreRefusedInOneLine) {
  // What a caller can hand to any program at all: 128 KiB a word, and a fraction of the stack.
  const std::string word(100'000, 'x');
  rlimit stack{};
  ASSERT_EQ(::getrlimit(RLIMIT_STACK, &stack), 0);
  rlimit wider = stack;
  wider.rlim_cur = 64U << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_STACK, &wider), 0);
  for (const std::size_t words :
       {std::size_t{1}, std::size_t{10}, std::size_t{21}, std::size_t{45}}) {
    std::vector<std::string> command = {"run", "--", "bash", "-c", "echo $#", "bash"};
    command.insert(command.end(), words, word);
    Run run = carrel(command);
    if (run.status == 0) {
      EXPECT_EQ(run.out, std::to_string(words) + "\n");
    } else {
      EXPECT_GT(words, 1U);
      // 126: what an engine starts has a stack of its own, and no room for so many words.
      EXPECT_TRUE(run.status == 125 || run.status == 126) << run.status << " " << words;
      EXPECT_TRUE(says_one_line(run, "")) << words;
    }
    std::vector<std::string> variables = {"run"};
    for (std::size_t i = 0; i < words; ++i) {
      variables.insert(variables.end(), {"--env", "V" + std::to_string(i) + "=" + word});
    }
    variables.insert(variables.end(), {"--", "bash", "-c", "echo ${#V0}"});
    run = carrel(variables);
    if (run.status == 0) {
      EXPECT_EQ(run.out, "100000\n");
    } else {
      EXPECT_GT(words, 1U);
      EXPECT_EQ(run.status, 125) << words;
      EXPECT_TRUE(says_one_line(run, "")) << words;
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_STACK, &stack), 0);
}

// A large environment of the caller's own is none of the sandbox's.
TEST_P(Errors, CallersLargeEnvironmentDoesNotMatter) {
  std::vector<std::string> variables;
  for (int i = 0; i < 15; ++i) {
    variables.push_back("BIG" + std::to_string(i) + "=" + std::string(100'000, 'x'));
  }
  Run run = carrel({"run", "--", "bash", "-c", "env | wc -c"}, {.environment = variables});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_LT(std::stoul("0" + run.out), 1000U);
}

TEST_P(Errors, LargeCodeRunsOrIsRefusedInOneLine) {
  const std::string code = "print(len('" + std::string(1'900'000, 'x') + "'))";
  Run run = python(code);
  EXPECT_EQ(run.out, "1900000\n") << run.err;
  Run refused = python("#" + std::string(10U << 20, 'x') + "\nprint('ran')");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, ""));
}

TEST_P(Errors, OddBytesArePassedOnOrRefused) {
  EXPECT_EQ(carrel({"run", "--", "printf", "%s", "\xff\xfe\xc3"}).out, "\xff\xfe\xc3");
  EXPECT_EQ(carrel({"run", "--", "printf", "%s", "a\nb\tc\x01"}).out, "a\nb\tc\x01");
  EXPECT_EQ(carrel({"run", "--env", "A=\xff", "--", "bash", "-c", "printf %s \"$A\""}).out, "\xff");
  expect_refused({"run", "--workdir", "/a\nb", "--", "true"}, "workdir");
  expect_refused({"run", "--hostname", "a\xff", "--", "true"}, "hostname");
  expect_refused({"run", "--\xff\n", "--", "true"}, "unknown option");
  Run named = carrel({"create", "--name", "a/../b"});
  EXPECT_EQ(named.status, 2);
  EXPECT_TRUE(says_one_line(named, "name"));
  expect_refused({"sh", "../../etc", "true"}, "etc");
  // NUL can only come in a file.
  Run nul = carrel({"code", "--lang", "bash", "-"},
                   {.input = std::string("echo before\necho a\0b\necho c\n", 29)});
  EXPECT_EQ(nul.out.substr(0, 7), "before\n") << nul.err;
  EXPECT_EQ(nul.signal, 0);
  EXPECT_LT(python(std::string("print(1)\0", 9)).status, 3);
  EXPECT_EQ(carrel({"code", "-"}).status, 0) << "no code at all does nothing";
}

TEST_P(Errors, StateDirectoryThatCannotBeUsedIsNamed) {
  const std::string home = place().work(GetParam()) + "/odd";
  auto with_home = [&](const std::string& path) {
    Run run = carrel({"run", "--", "echo", "ran"}, {.environment = {"CARREL_HOME=" + path}});
    EXPECT_EQ(run.status, 125) << path;
    EXPECT_TRUE(says_one_line(run, path)) << path;
    return run;
  };
  with_home("/proc/nowhere");
  with_home("relative");
  with_home(file("a-file", "x"));
  with_home("/" + std::string(5000, 'x'));
  // Somebody else's, and one that everybody can write to.
  ASSERT_EQ(::mkdir(home.c_str(), 0777), 0);
  ASSERT_EQ(::chmod(home.c_str(), 0777), 0);
  place().give(home, GetParam());
  with_home(home);
  if (!as_root() && ::geteuid() == 0) {
    with_home(place().home(As::kRoot));
    ASSERT_EQ(::chmod(home.c_str(), 0500), 0);
    with_home(home);
  }
  Run made = carrel({"run", "--", "echo", "ran"},
                    {.environment = {"CARREL_HOME=" + place().work(GetParam()) + "/new/deep"}});
  EXPECT_EQ(made.out, "ran\n") << made.err;
  const std::string label =
      read_text(place().work(GetParam()) + "/new/deep/installation").value_or("none");
  remove_groups(label);
}

TEST_P(Errors, DamagedStateIsSaidAndNotOverwritten) {
  const std::string home = place().home(GetParam());
  write_text(home + "/installation", "garbage!");
  place().give(home + "/installation", GetParam());
  expect_refused({"run", "--", "echo", "ran"}, "installation");
  EXPECT_EQ(read_text(home + "/installation"), "garbage!");
  ASSERT_EQ(::unlink((home + "/installation").c_str()), 0);
  write_text(home + "/state.db", "this is no database, and not empty either");
  place().give(home + "/state.db", GetParam());
  Run list = carrel({"ls"});
  EXPECT_EQ(list.status, 125);
  EXPECT_TRUE(says_one_line(list, "state database"));
  EXPECT_EQ(bash("echo one-shots need no database").status, 0);
  ASSERT_EQ(::unlink((home + "/state.db").c_str()), 0);
}

TEST_P(Errors, FullDiskIsSaidAndLosesNothing) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount a small file system";
  }
  // In the mount namespace of this test alone.
  const std::string home = place().work(GetParam()) + "/full";
  ASSERT_EQ(::mkdir(home.c_str(), 0700), 0);
  ASSERT_EQ(::mount("none", home.c_str(), "tmpfs", MS_NOSUID, "size=256k,mode=0700"), 0);
  place().give(home, GetParam());
  Options options{.environment = {"CARREL_HOME=" + home}};
  Run made = carrel({"create", "--name", "before"}, options);
  ASSERT_EQ(made.status, 0) << made.err;
  {
    std::ofstream filler(home + "/filler");
    filler << std::string(1U << 20, 'x');
  }
  // One-shots write nothing that has a size; a new sandbox cannot be recorded; the old one works.
  Run full = carrel({"create"}, options);
  EXPECT_EQ(full.status, 125);
  EXPECT_TRUE(says_one_line(full, ""));
  EXPECT_EQ(carrel({"sh", "before", "echo works"}, options).out, "works\n");
  ASSERT_EQ(::unlink((home + "/filler").c_str()), 0);
  EXPECT_EQ(carrel({"sh", "before", "echo still"}, options).out, "still\n");
  json list = json::parse(carrel({"ls", "--json"}, options).out, nullptr, false);
  EXPECT_EQ(list["sandboxes"].size(), 1U) << list;
  EXPECT_EQ(carrel({"create"}, options).status, 0);
  EXPECT_EQ(carrel({"rm", "--all", "--force"}, options).status, 0);
  const std::string label = read_text(home + "/installation").value_or("none");
  // The keeper of that home holds it until it leaves.
  EXPECT_TRUE(eventually(seconds(10), [&] { return ::umount2(home.c_str(), 0) == 0; }));
  remove_groups(label);
}

// Standard output that cannot be written to is an error, not a success.
TEST_P(Errors, FullOutputIsNotSuccess) {
  Launch outer = launch({});
  outer.arguments = {"-c", outer.program + " run -- echo hello > /dev/full"};
  outer.program = "/bin/sh";
  Process process(outer);
  Run run = process.wait(seconds(10));
  EXPECT_NE(run.status, 0);
  EXPECT_FALSE(run.timed_out);
}

// R209: all ways to lose a sandbox while nobody looks
TEST_P(Errors, SandboxThatDiedInBetweenIsOneLine) {
  Box box(GetParam());
  const pid_t first = box.first_process();
  ASSERT_GT(first, 1);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_TRUE(eventually(seconds(5), [&] { return status_field(first, "VmSize").empty(); }));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"sh", box.id(), "true"},
                                                {"exec", box.id(), "--", "true"},
                                                {"stats", box.id()}}) {
    Run run = carrel(words);
    EXPECT_EQ(run.status, 125) << words[0];
    EXPECT_TRUE(says_one_line(run, "andbox")) << words[0];
    EXPECT_LT(run.duration, patient(seconds(2))) << words[0];
  }
  EXPECT_EQ(carrel({"info", box.id()}).status, 0) << "what is known of it can still be asked";
}

}  // namespace
}  // namespace carrel::test
