// What a command's result says: status, signal, streams, bytes, and what is not its fault.
#include <csignal>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/nursery.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Results : public CarrelTest {
 protected:
  json result_of(const std::string& script, std::vector<std::string> options = {}) const {
    options.emplace_back("--json");
    Run run = bash(script, options);
    json result = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << run.out.substr(0, 300) << run.err;
    EXPECT_EQ(run.err, "");
    return result.is_object() ? result : json::object();
  }
};
CARREL_AS_BOTH(Results);

// R2, B-28
TEST_P(Results, ExitStatusAndOutputComeTogether) {
  json result = result_of("(printf hi; exit 7)");
  EXPECT_EQ(result["exit_code"], 7);
  EXPECT_EQ(result["stdout"], "hi");
  EXPECT_EQ(bash("(printf hi; exit 7)").status, 7);
}

// R3
TEST_P(Results, EveryExitStatusIsPassedThrough) {
  for (int status = 0; status < 256; ++status) {
    Run run = carrel({"run", "--", "bash", "-c", "exit " + std::to_string(status)});
    ASSERT_EQ(run.status, status) << run.err;
  }
}

// R3
TEST_P(Results, DeathBySignalIsTold) {
  for (int signal : {SIGKILL, SIGTERM, SIGSEGV, SIGABRT, SIGHUP}) {
    json result = result_of("kill -" + std::to_string(signal) + " $$");
    EXPECT_EQ(result["exit_code"], 128 + signal);
    EXPECT_EQ(result["signal"], signal);
    EXPECT_FALSE(result["success"]);
    EXPECT_FALSE(result["oom_killed"]);
  }
  EXPECT_EQ(bash("kill -9 $$").status, 137);
  // The same number from a command that was not killed itself: no signal.
  EXPECT_EQ(result_of("(kill -9 $BASHPID); exit $?")["exit_code"], 137);
  EXPECT_EQ(result_of("(kill -9 $BASHPID); exit $?")["signal"], 0);
}

// Whatever keeps sandboxes ignores the signals of a terminal, and so may whoever asks for one.
TEST_P(Results, NoCommandIgnoresASignalFromItsBeginning) {
  const std::string look = "trap -p; echo no more";  // of those that were ignored before it began
  const std::string none = "no more\n";
  const auto ignoring = [&](std::vector<std::string> words) {
    Launch launch = this->launch(std::move(words));
    launch.arguments.insert(
        launch.arguments.begin(),
        {"-c", "trap '' HUP INT TERM USR1; exec \"$0\" \"$@\"", launch.program});
    launch.program = "/bin/sh";
    return Process(launch).wait(seconds(20)).out;
  };
  EXPECT_EQ(ignoring({"run", "--", "bash", "-c", look}), none);
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  EXPECT_EQ(bash(look).out, none) << "from the nursery";
  EXPECT_EQ(ignoring({"run", "--", "bash", "-c", look}), none) << "from the nursery";
  EXPECT_EQ(box.sh(look).out, none);
  EXPECT_EQ(box.exec({"bash", "-c", look}).out, none);
  EXPECT_EQ(ignoring({"exec", box.id(), "--", "bash", "-c", look}), none);
}

TEST_P(Results, ControlCOnATerminalEndsACommand) {
  const Box box(GetParam());
  Launch launch = this->launch({});
  launch.arguments = {
      "-qec", launch.program + " exec -t " + box.id() + " -- sh -c 'echo up; exec sleep 60'",
      "/dev/null"};
  launch.program = "/usr/bin/script";
  Process terminal(launch);
  ASSERT_TRUE(terminal.wait_for_output("up", seconds(20))) << terminal.err();
  terminal.write("\x03");
  EXPECT_EQ(terminal.wait(seconds(10)).status, 130) << terminal.out();
}

// R4
TEST_P(Results, SuccessIsExitZeroInTime) {
  EXPECT_TRUE(result_of("exit 0")["success"]);
  EXPECT_FALSE(result_of("exit 3")["success"]);
  json late = result_of("sleep 600", {"--timeout", "300ms"});
  EXPECT_FALSE(late["success"]);
  EXPECT_TRUE(late["timed_out"]);
  EXPECT_FALSE(result_of("exit 124")["timed_out"]) << "a command may exit with 124 itself";
}

// R4: one shape everywhere
TEST_P(Results, EveryFieldIsAlwaysThere) {
  json result = result_of("true");
  std::vector<std::string> names;
  for (const auto& [name, value] : result.items()) {
    names.push_back(name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"causes", "cwd", "duration_ms", "exit_code", "oom_killed",
                                      "reason", "shell_restarted", "signal", "stderr", "stdout",
                                      "success", "timed_out", "truncated"}));
}

// R5
TEST_P(Results, PlainOutputIsTheCommandsOwn) {
  Run good = bash("echo out; echo err >&2");
  EXPECT_EQ(good.out, "out\n");
  EXPECT_EQ(good.err, "err\n");
  Run bad = bash("echo out; echo err >&2; exit 3");
  EXPECT_EQ(bad.out, "out\n");
  EXPECT_EQ(bad.err, "err\n");
  EXPECT_EQ(bad.status, 3);
  Run late = bash("echo out; echo err >&2; sleep 600", {"--timeout", "300ms"});
  EXPECT_EQ(late.out, "out\n");
  EXPECT_EQ(late.err.substr(0, 27), "err\ncarrel: timed out after");
  EXPECT_EQ(late.status, 124);
}

// R6, B-30
TEST_P(Results, InvalidUtf8IsReplacedAndTheBytesAreKept) {
  json result = result_of("printf '\\xff\\xfe\\n'; printf 'a\\xc3' >&2");
  EXPECT_EQ(result["stdout"], "\xef\xbf\xbd\xef\xbf\xbd\n");
  EXPECT_EQ(result["stdout_b64"], "//4K");
  EXPECT_EQ(result["stderr"], "a\xef\xbf\xbd");
  EXPECT_EQ(result["stderr_b64"], "YcM=");
  EXPECT_EQ(bash("printf '\\xff\\xfe\\n'").out, "\xff\xfe\n");
  EXPECT_FALSE(result_of("printf 'gr\\xc3\\xbc\\xc3\\x9f'").contains("stdout_b64"));
}

// R6
TEST_P(Results, EveryByteIsPassedOn) {
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
  }
  EXPECT_EQ(carrel({"run", "--", "cat"}, {.input = all}).out, all);
}

// R7
TEST_P(Results, StreamsAreApartUnlessMerged) {
  json apart = result_of("echo o; echo e >&2");
  EXPECT_EQ(apart["stdout"], "o\n");
  EXPECT_EQ(apart["stderr"], "e\n");
  const std::string script = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
  json merged = result_of(script, {"--merge-output"});
  EXPECT_EQ(merged["stdout"], "o1\ne1\no2\ne2\no3\ne3\n");
  EXPECT_EQ(merged["stderr"], "");
  EXPECT_EQ(bash(script, {"--merge-output"}).out, "o1\ne1\no2\ne2\no3\ne3\n");
}

// R8, B-25, B-26, B-27
TEST_P(Results, OutputIsExact) {
  for (const std::string text :
       {"42\n", "a\n\n b", "x$ ", "\n\n\n", "  lead", "$ echo $?\n0\n", "> \n# \nDone", "1\n2\n3\n",
        "\r\n", "no newline", "\x1b[31mred\x1b[0m"}) {
    Run run = carrel({"run", "--", "printf", "%s", text});
    EXPECT_EQ(run.out, text);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(json::parse(carrel({"run", "--json", "--", "printf", "%s", text}).out)["stdout"],
              text);
  }
}

// R13, B-15, B-59
TEST_P(Results, EndlessOutputIsKeptInBoundedMemory) {
  Run run = bash("yes | head -c 300M; echo end", {"--json"});
  ASSERT_EQ(run.status, 0);
  EXPECT_LT(run.max_rss_kib, 64 * 1024);
  json result = json::parse(run.out);
  EXPECT_TRUE(result["truncated"]);
  const auto& text = result["stdout"].get_ref<const std::string&>();
  EXPECT_EQ(text.substr(0, 4), "y\ny\n");
  EXPECT_EQ(text.substr(text.size() - 4), "end\n");
  EXPECT_GT(text.size(), 10U << 20);
  EXPECT_LT(text.size(), (10U << 20) + 200);
}

// R13
TEST_P(Results, LimitOfWhatIsKeptIsExact) {
  json whole = result_of("head -c 10M /dev/zero | tr '\\0' x");
  EXPECT_FALSE(whole["truncated"]);
  EXPECT_EQ(whole["stdout"].get_ref<const std::string&>().size(), 10U << 20);
  EXPECT_TRUE(result_of("head -c 10485761 /dev/zero | tr '\\0' x")["truncated"]);
}

// R13: what is passed on is not cut
TEST_P(Results, PassedOnOutputIsWhole) {
  Run run = bash("yes | head -c 50M");
  EXPECT_EQ(run.out.size(), 50U << 20);
  EXPECT_EQ(run.status, 0);
}

// R14, B-20, R209
TEST_P(Results, DeathOfTheSandboxIsAnErrorOfCarrels) {
  for (const bool with_json : {false, true}) {
    std::vector<std::string> words = {"run"};
    if (with_json) {
      words.emplace_back("--json");
    }
    words.insert(words.end(), {"--", "bash", "-c", "touch /tmp/up; sleep 600"});
    Process process(launch(words));
    pid_t first = 0;
    ASSERT_TRUE(eventually(seconds(10), [&] {
      bool sleeping = false;
      for (const HostProcess& one : descendants()) {
        first = status_field(one.pid, "NSpid").ends_with("\t1") ? one.pid : first;
        sleeping = sleeping || one.name == "sleep";
      }
      return sleeping && first != 0;
    }));
    ASSERT_EQ(::kill(first, SIGKILL), 0);
    Run run = process.wait(seconds(2));
    EXPECT_FALSE(run.timed_out);
    EXPECT_EQ(run.status, 125);
    if (with_json) {
      json object = json::parse(run.out);
      EXPECT_EQ(object["error"]["code"], "gone");
      EXPECT_EQ(object["exit_code"], 125);
      EXPECT_FALSE(object.contains("success"));
    } else {
      EXPECT_TRUE(says_one_line(run, "sandbox"));
    }
  }
}

// B-20: 125 to 127 of the command itself are not Carrel's, and the line on stderr tells them apart
TEST_P(Results, CommandsOwn125To127ArePassedOnSilently) {
  for (int status : {124, 125, 126, 127}) {
    Run run = bash("exit " + std::to_string(status));
    EXPECT_EQ(run.status, status);
    EXPECT_EQ(run.err, "");
  }
}

}  // namespace
}  // namespace carrel::test
