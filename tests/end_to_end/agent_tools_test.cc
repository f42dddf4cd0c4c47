// The tools of an agent in a sandbox, called by a scripted model.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/fixture.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class AgentTools : public CarrelTest {
 protected:
  struct Call {
    std::string name;
    json arguments;
  };
  // Calls tools one after the other, in one turn of one agent; the answers in their order.
  json call(const std::vector<Call>& calls,
            const std::string& profile =
                "tools = [\"exec\", \"files\", "
                "\"sessions\", \"run_code\"]\n",
            const std::vector<std::string>& words = {}) {
    json replies = json::array();
    for (const Call& one : calls) {
      const json called = {{"name", one.name}, {"arguments", one.arguments}};
      replies.push_back({{"calls", json::array({called})}});
    }
    replies.push_back({{"text", "done"}});
    const json turn = {{"replies", replies}};
    const json script = {{"turns", json::array({turn})}};
    std::vector<std::string> all = {"agent",
                                    "run",
                                    "--json",
                                    "--script",
                                    file("script.json", script.dump()),
                                    "--profile",
                                    file("profile.toml", profile),
                                    "go"};
    all.insert(all.end(), words.begin(), words.end());
    const Run run = carrel(all);
    const json done = json::parse(run.out, nullptr, false);
    EXPECT_EQ(run.status, 0) << run.out << run.err;
    notices_ = done.is_object() ? done.value("notices", json::array()) : json::array();
    return run.status == 0 ? done["turns"][0]["calls"] : json::array();
  }
  static Call exec(const std::string& command) { return {"exec", {{"command", command}}}; }
  // The first line of a session's answer.
  static json state(const json& answer) {
    const std::string text = answer["output"];
    return json::parse(text.substr(0, text.find('\n')), nullptr, false);
  }
  json notices_;
};
CARREL_AS_BOTH(AgentTools);

TEST_P(AgentTools, ALongOutputIsCutForTheModelAndWholeInAFile) {
  const json answers =
      call({exec("seq 1 500"),
            exec("tail -1 /workspace/.exec/*.out; ls "
                 "/workspace/.exec | wc -l"),
            exec("head -c 1000000 /dev/zero | tr '\\0' x"), exec("yes | head -c 200M")});
  ASSERT_EQ(answers.size(), 4U);
  const std::string seen = answers[0]["output"];
  EXPECT_THAT(seen, HasSubstr("100\n[... 300 of 500 lines are left out here ...]\n401\n"));
  EXPECT_THAT(seen, HasSubstr("[the whole output is in /workspace/.exec/"));
  EXPECT_EQ(answers[1]["output"], "500\n1\n");
  const std::string line = answers[2]["output"];
  EXPECT_THAT(line, HasSubstr(std::string(2000, 'x') + "... [998000 more bytes in this line]"));
  EXPECT_EQ(answers[3]["exit_code"], 0);
  EXPECT_THAT(answers[3]["output"].get<std::string>(), HasSubstr("but for what is marked there"));
}

// R70
TEST_P(AgentTools, AFailureHasItsCodeAndBothStreams) {
  const json answers = call(
      {exec("echo out; echo err >&2; exit 4"), {"exec", {{"command", "sleep 9"}, {"timeout", 1}}}});
  EXPECT_EQ(answers[0]["error"], "exit code 4 (exit status 4)\nout\nerr\n");
  EXPECT_EQ(answers[0]["exit_code"], 4);
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("timed out"));
}

// What compilers, git and test runners say is on stderr, and they say it when all is well.
TEST_P(AgentTools, ASuccessHasBothStreamsInTheOrderInWhichTheyCame) {
  const std::string script = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
  const std::string in_order = "o1\ne1\no2\ne2\no3\ne3\n";
  const std::string unittest =
      "import unittest\nclass T(unittest.TestCase):\n  def test_it(self): print('here')\n"
      "unittest.main()\n";
  const std::vector<Call> calls = {
      exec(script),
      {"run_code", {{"code", script}, {"language", "bash"}}},
      exec(script + "; exit 4"),
      {"execute_command", {{"command", script}, {"session_name", "s"}, {"blocking", true}}},
      exec("git init -q a && git clone a b"),
      exec("echo 'int main(void) { int unused; return 0; }' | gcc -Wall -xc - -o p"),
      {"run_code", {{"code", unittest}}},
      exec("exec 2>/workspace/own; echo one >&2; echo two"),
      exec("cat /workspace/own"),
  };
  const json answers = call(calls);
  ASSERT_EQ(answers.size(), calls.size());
  EXPECT_EQ(answers[0]["output"], in_order);
  EXPECT_EQ(answers[1]["output"], in_order);
  EXPECT_EQ(answers[2]["error"], "exit code 4 (exit status 4)\n" + in_order);
  EXPECT_THAT(answers[3]["output"].get<std::string>(), HasSubstr("\n" + in_order));
  EXPECT_THAT(answers[4]["output"].get<std::string>(), HasSubstr("Cloning into 'b'..."));
  EXPECT_THAT(answers[5]["output"].get<std::string>(), HasSubstr("unused variable"));
  EXPECT_EQ(answers[5]["exit_code"], 0);
  EXPECT_THAT(answers[6]["output"].get<std::string>(), HasSubstr("Ran 1 test in"));
  EXPECT_THAT(answers[6]["output"].get<std::string>(), HasSubstr("here\n"));
  EXPECT_EQ(answers[7]["output"], "two\n");  // a command's own redirection is its own
  EXPECT_EQ(answers[8]["output"], "one\n");
}

TEST_P(AgentTools, TheKeptFileHasBothStreamsInOrder) {
  const json answers =
      call({exec("for i in $(seq 1 300); do echo o$i; echo e$i >&2; done"),
            exec("seq 1 300 | sed 's/.*/o&\\ne&/' | cmp - /workspace/.exec/*.out && echo same")});
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_THAT(answers[0]["output"].get<std::string>(), HasSubstr("400 of 600 lines are left out"));
  EXPECT_EQ(answers[1]["output"], "same\n") << answers[1].dump();
}

TEST_P(AgentTools, OnTheHostBothStreamsComeInOrder) {
  const json answers = call({exec("for i in 1 2 3; do echo o$i; echo e$i >&2; done")},
                            "tools = [\"exec\"]\nsandboxed = \"none\"\n");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0]["output"], "o1\ne1\no2\ne2\no3\ne3\n");
}

// R71
TEST_P(AgentTools, ExecNeverTouchesTheHostUnlessTheProfileSaysSo) {
  file("canary", "of the host");
  const std::string look = "cat " + place().work(GetParam()) + "/canary; hostname";
  const json inside = call({exec(look)}, "tools = [\"exec\"]\n");
  EXPECT_THAT(inside.dump(), Not(HasSubstr("of the host")));
  const json outside = call({exec(look)}, "tools = [\"exec\"]\nsandboxed = \"none\"\n");
  EXPECT_THAT(outside.dump(), HasSubstr("of the host"));
  EXPECT_THAT(notices_.dump(), HasSubstr("outside of any sandbox"));
  // Only its files are in the sandbox, and only its code.
  const json files = call({exec("cat canary"), {"read_file", {{"file_path", "canary"}}}},
                          "tools = [\"exec\", \"files\"]\nsandboxed = \"files\"\n");
  EXPECT_THAT(files[0].dump(), HasSubstr("of the host"));
  EXPECT_THAT(files[1]["error"].get<std::string>(), HasSubstr("does not exist"));
  const json code = call({exec("cat canary"), {"read_file", {{"file_path", "canary"}}}},
                         "tools = [\"exec\", \"files\"]\nsandboxed = \"code\"\n");
  EXPECT_THAT(code[0].dump(), Not(HasSubstr("of the host")));
  EXPECT_EQ(code[1]["output"], "of the host");
}

// R157
TEST_P(AgentTools, FilesAreCreatedChangedReadAndDeleted) {
  const json answers = call({
      {"create_file", {{"file_path", "src/Makefile"}, {"file_contents", "all:\n\tcc a\n\tcc b\n"}}},
      {"create_file", {{"file_path", "src/Makefile"}, {"file_contents", ""}}},
      {"create_file",
       {{"file_path", "/workspace/empty"}, {"file_contents", ""}, {"permissions", "600"}}},
      {"str_replace", {{"file_path", "src/Makefile"}, {"old_str", "cc"}, {"new_str", "x"}}},
      {"str_replace", {{"file_path", "src/Makefile"}, {"old_str", "nothing"}, {"new_str", "x"}}},
      {"str_replace", {{"file_path", "src/Makefile"}, {"old_str", "\tcc a\n"}, {"new_str", ""}}},
      {"read_file", {{"file_path", "src/Makefile"}, {"start_line", 2}, {"end_line", 2}}},
      {"full_file_rewrite", {{"file_path", "missing"}, {"file_contents", "x"}}},
      {"delete_file", {{"file_path", "empty"}}},
      {"read_file", {{"file_path", "empty"}}},
      {"read_file", {{"file_path", "../etc/passwd"}}},
      {"read_file", {{"file_path", "/etc/passwd"}}},
      {"create_file", {{"file_path", "index.html"}, {"file_contents", "<p>hi"}}},
      {"list_files", json::object()},
      {"create_file", {{"file_path", "x"}}},
      exec("stat -c '%a %n' /workspace/src /workspace/src/Makefile"),
      {"full_file_rewrite", {{"file_path", "index.html"}, {"file_contents", "<p>again"}}},
      {"create_file", {{"file_path", "src/index.html"}, {"file_contents", "<p>hi"}}},
  });
  ASSERT_EQ(answers.size(), 18U);
  EXPECT_EQ(answers[0]["error"], "");
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("exists"));
  EXPECT_EQ(answers[2]["error"], "");
  EXPECT_THAT(answers[3]["error"].get<std::string>(), HasSubstr("on lines 2, 3"));
  EXPECT_THAT(answers[4]["error"].get<std::string>(), HasSubstr("not found"));
  EXPECT_EQ(answers[5]["error"], "");
  EXPECT_EQ(answers[6]["output"], "\tcc b\n");
  EXPECT_THAT(answers[7]["error"].get<std::string>(), HasSubstr("does not exist"));
  EXPECT_EQ(answers[8]["error"], "");
  EXPECT_THAT(answers[9]["error"].get<std::string>(), HasSubstr("does not exist"));
  EXPECT_THAT(answers[10]["error"].get<std::string>(), HasSubstr("potentially unsafe"));
  EXPECT_THAT(answers[11]["error"].get<std::string>(), HasSubstr("not in the workspace"));
  EXPECT_THAT(answers[12]["output"].get<std::string>(), HasSubstr("http://localhost:8080/"));
  EXPECT_THAT(answers[13]["output"].get<std::string>(), HasSubstr("src/Makefile"));
  EXPECT_THAT(answers[14]["error"].get<std::string>(), HasSubstr("'file_contents'"));
  EXPECT_EQ(answers[15]["output"], "755 /workspace/src\n644 /workspace/src/Makefile\n");
  EXPECT_THAT(answers[16]["output"].get<std::string>(), HasSubstr("http://localhost:8080/"));
  EXPECT_EQ(answers[17]["error"], "");
  EXPECT_THAT(answers[17]["output"].get<std::string>(), Not(HasSubstr("http://")));
}

// R159, R161, B-48
TEST_P(AgentTools, CommandThatIsNotWaitedForAnswersAtOnceAndIsLookedAtLater) {
  const Call now = exec("date +%s%3N");
  const std::string slow = "echo one; until test -e go; do sleep 0.05; done; echo two; sleep 30";
  const json answers = call({
      now,
      {"execute_command", {{"command", slow}}},
      now,
      {"list_commands", json::object()},
      {"execute_command", {{"command", slow}, {"session_name", "s"}}},
      exec("sleep 0.5"),
      {"check_command_output", {{"session_name", "s"}}},
      exec("touch go; sleep 0.5"),
      {"check_command_output", {{"session_name", "s"}}},
  });
  ASSERT_EQ(answers.size(), 9U);
  const json begun = state(answers[1]);
  EXPECT_NE(begun["session_name"], "");
  EXPECT_EQ(begun["cwd"], "/workspace");
  EXPECT_EQ(begun["completed"], false);
  EXPECT_FALSE(begun.contains("exit_code"));
  const auto ms = [&](std::size_t i) {
    return std::stoll(answers[i]["output"].get<std::string>());
  };
  EXPECT_LT(ms(2) - ms(0), patient(std::chrono::seconds(1)).count());
  const json listed = json::parse(answers[3]["output"].get<std::string>());
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["session_name"], begun["session_name"]);
  // What is new, and whether it runs.
  EXPECT_EQ(state(answers[6])["completed"], false);
  EXPECT_THAT(answers[8]["output"].get<std::string>(), HasSubstr("\ntwo\n"));
  EXPECT_THAT(answers[8]["output"].get<std::string>(), Not(HasSubstr("\none\n")));
  EXPECT_EQ(state(answers[8])["completed"], false);
}

// R164, R166, B-47, B-48
TEST_P(AgentTools, ShellOfASessionMayExitAndItsWordsAreReadOnce) {
  const auto wait_for = [](const std::string& command) {
    return Call{"execute_command",
                {{"command", command}, {"session_name", "s"}, {"blocking", true}}};
  };
  const json answers = call({
      wait_for("echo '$ '; echo Done; echo '#'; sleep 1; exit 4"),
      wait_for("echo again"),
      wait_for("X=1; echo '$X `id` \\$X \"$(id)\"' \"$X\""),
  });
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(state(answers[0])["completed"], true);
  EXPECT_EQ(state(answers[0])["exit_code"], 4);
  EXPECT_THAT(answers[0]["output"].get<std::string>(), HasSubstr("\n$ \nDone\n#\n"));
  EXPECT_EQ(state(answers[1])["exit_code"], 0);
  EXPECT_THAT(answers[1]["output"].get<std::string>(), HasSubstr("\nagain\n"));
  EXPECT_THAT(answers[2]["output"].get<std::string>(), HasSubstr("\n$X `id` \\$X \"$(id)\" 1\n"));
}

// R167
TEST_P(AgentTools, MissingAndUnknownArgumentsAreNamed) {
  const std::vector<Call> calls = {
      {"execute_command", json::object()},
      {"check_command_output", json::object()},
      {"terminate_command", json::object()},
      {"execute_command", {{"command", "true"}, {"comand", "x"}}},
      {"check_command_output", {{"session_name", "s"}, {"kill", true}}},
      {"terminate_command", {{"session_name", "s"}, {"force", true}}},
      {"list_commands", {{"command", "x"}}},
      {"execute_command", {{"command", "true"}, {"blocking", "yes"}}},
  };
  const std::vector<std::string> named = {"'command'", "'session_name'", "'session_name'",
                                          "'comand'",  "'kill'",         "'force'",
                                          "'command'", "'blocking'"};
  const json answers = call(calls);
  ASSERT_EQ(answers.size(), calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_THAT(answers[i]["error"].get<std::string>(), HasSubstr(named[i])) << calls[i].name;
  }
}

// R160, R161, R163 to R167, B-47, B-48
TEST_P(AgentTools, SessionsKeepTheirStateAndTellTheirEndExactly) {
  const json answers = call({
      {"list_commands", json::object()},
      {"execute_command", {{"command", "sleep 30"}, {"session_name", "slow"}}},
      {"execute_command",
       {{"command", "export A=1; cd /tmp"}, {"session_name", "s"}, {"blocking", true}}},
      {"execute_command",
       {{"command", "echo $A; pwd; echo '$HOME'"}, {"session_name", "s"}, {"blocking", true}}},
      {"execute_command",
       {{"command", "echo '$ '; sleep 2; (exit 4)"}, {"session_name", "s"}, {"blocking", true}}},
      {"execute_command",
       {{"command", "echo one; sleep 30"},
        {"session_name", "t"},
        {"blocking", true},
        {"timeout", 1}}},
      {"check_command_output", {{"session_name", "t"}}},
      {"execute_command", {{"command", "true"}, {"session_name", "t"}}},
      {"list_commands", json::object()},
      {"execute_command", {{"command", "pwd"}, {"session_name", "x; touch p"}, {"blocking", true}}},
      {"execute_command", {{"command", "pwd"}, {"folder", "../etc"}}},
      {"execute_command", {{"command", "pwd"}, {"folder", "none"}}},
      exec("mkdir -p '/workspace/a '\"'\"'b'; ls /workspace"),
      {"execute_command", {{"command", "pwd"}, {"folder", "a 'b"}, {"blocking", true}}},
      {"check_command_output", {{"session_name", "nobody"}}},
      {"check_command_output", json::object()},
      {"execute_command", {{"comand", "x"}}},
  });
  ASSERT_EQ(answers.size(), 17U);
  EXPECT_EQ(answers[0]["output"], "[]");
  EXPECT_EQ(state(answers[1])["completed"], false);
  EXPECT_EQ(state(answers[1])["session_name"], "slow");
  EXPECT_FALSE(state(answers[1]).contains("exit_code"));
  EXPECT_EQ(state(answers[2])["completed"], true);
  EXPECT_EQ(state(answers[2])["cwd"], "/tmp");
  EXPECT_THAT(answers[3]["output"].get<std::string>(), HasSubstr("\n1\n/tmp\n$HOME\n"));
  EXPECT_EQ(state(answers[4])["exit_code"], 4);
  EXPECT_EQ(state(answers[5])["completed"], false);
  EXPECT_FALSE(state(answers[5]).contains("exit_code"));
  EXPECT_THAT(answers[5]["output"].get<std::string>(), HasSubstr("\none\n"));
  EXPECT_EQ(state(answers[6])["completed"], false);
  EXPECT_THAT(answers[6]["output"].get<std::string>(), Not(HasSubstr("one\n")));
  EXPECT_THAT(answers[7]["error"].get<std::string>(), HasSubstr("still running"));
  EXPECT_EQ(json::parse(answers[8]["output"].get<std::string>()).size(), 3U);
  EXPECT_EQ(state(answers[9])["session_name"], "x; touch p");
  EXPECT_THAT(answers[10]["error"].get<std::string>(), HasSubstr("potentially unsafe"));
  EXPECT_THAT(answers[11]["error"].get<std::string>(), HasSubstr("no folder 'none'"));
  EXPECT_EQ(answers[12]["output"], "a 'b\n");  // and no file named p
  EXPECT_THAT(answers[13]["output"].get<std::string>(), HasSubstr("\n/workspace/a 'b\n"));
  EXPECT_THAT(answers[14]["error"].get<std::string>(), HasSubstr("no session 'nobody'"));
  EXPECT_THAT(answers[15]["error"].get<std::string>(), HasSubstr("'session_name'"));
  EXPECT_NE(answers[16]["error"], "");
}

// R161, R162
TEST_P(AgentTools, TerminatingASessionLeavesNothingOfIt) {
  const json answers = call({
      {"execute_command",
       {{"command", "sleep 1111 & setsid sleep 1112 & true"},
        {"session_name", "s"},
        {"blocking", true}}},
      {"execute_command", {{"command", "(sleep 1113 &); sleep 1114"}, {"session_name", "s"}}},
      {"execute_command", {{"command", "sleep 1115"}, {"session_name", "other"}}},
      {"terminate_command", {{"session_name", "s"}}},
      exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 111[0-9]'"),
      {"check_command_output", {{"session_name", "other"}, {"kill_session", true}}},
      exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 111[0-9]' | wc -l"),
      {"list_commands", json::object()},
  });
  ASSERT_EQ(answers.size(), 8U);
  EXPECT_EQ(answers[3]["error"], "");
  EXPECT_EQ(answers[4]["output"], "sleep 1115\n");
  EXPECT_EQ(answers[6]["output"], "0\n");
  EXPECT_EQ(answers[7]["output"], "[]");
}

TEST_P(AgentTools, CodeRunsInItsLanguage) {
  const json answers = call({{"run_code", {{"code", "print(sum(range(10)))"}}},
                             {"run_code", {{"code", "echo $((6*7))"}, {"language", "bash"}}},
                             {"run_code", {{"code", "raise SystemExit(3)"}}},
                             {"run_code", {{"code", "x"}, {"language", "cobol"}}}});
  EXPECT_EQ(answers[0]["output"], "45\n");
  EXPECT_EQ(answers[1]["output"], "42\n");
  EXPECT_EQ(answers[2]["exit_code"], 3);
  EXPECT_THAT(answers[3]["error"].get<std::string>(), HasSubstr("python, bash, node"));
}

// R168
TEST_P(AgentTools, ADangerousCommandIsNoticedAndTheRoomHolds) {
  const json answers = call({exec("rm -rf / 2>/dev/null; true"), exec("rm -rf /workspace/build")});
  EXPECT_THAT(answers[0]["system"].get<std::string>(), HasSubstr("removes everything"));
  EXPECT_EQ(answers[1]["system"], "");
  EXPECT_TRUE(std::filesystem::exists("/bin/sh"));
}

TEST_P(AgentTools, ServicesAreTypedAndOnlyThoseThatAreAllowed) {
  const std::string profile = R"toml(
tools = ["exec", "services"]
allowed_services = ["double"]
[services.double]
description = "twice a number"
command = ["python3", "-c", "import json,sys; print(2*json.load(sys.stdin)['n'])"]
[services.double.arguments]
type = "object"
required = ["n"]
[services.double.arguments.properties.n]
type = "integer"
[services.other]
description = "not for this agent"
command = ["id"]
)toml";
  const json answers = call({{"service_double", {{"n", 21}}},
                             {"service_double", {{"n", "21; id"}}},
                             {"service_other", json::object()}},
                            profile);
  EXPECT_EQ(answers[0]["output"], "42\n");
  EXPECT_THAT(answers[1]["error"].get<std::string>(), HasSubstr("must be an integer"));
  EXPECT_THAT(answers[2]["error"].get<std::string>(), HasSubstr("no tool 'service_other'"));
}

TEST_P(AgentTools, SessionsOutsideOfASandboxAreRefused) {
  const json script = {{"turns", {{{"replies", {{{"text", "x"}}}}}}}};
  const Run run = carrel({"agent", "run", "--script", file("s.json", script.dump()), "--profile",
                          file("p.toml", "tools = [\"sessions\"]\nsandboxed = \"files\"\n"), "go"});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("needs a sandbox"));
}

}  // namespace
}  // namespace carrel::test
