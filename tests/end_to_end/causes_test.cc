// After a failure whose reason is known: the reason and the option that changes it, in one line of
// the command's own standard error or in a field, and never in what the command itself said.
#include <iostream>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using nlohmann::json;

// The option that is named for a cause of that kind; empty if there is no such cause.
std::string option_for(const json& result, const std::string& kind) {
  for (const json& cause : result.value("causes", json::array())) {
    if (cause.value("kind", "") == kind) {
      EXPECT_FALSE(cause.value("message", "").empty()) << cause;
      return cause.value("option", "");
    }
  }
  return "";
}

class Causes : public CarrelTest {
 protected:
  // The result of that script in a one-shot with these options. What the command wrote to its
  // standard error is the command's alone, and without --json there is one line about the cause.
  [[nodiscard]] json once(const std::string& script, const std::vector<std::string>& options,
                          const std::string& told) const {
    std::vector<std::string> words = options;
    words.emplace_back("--json");
    const json result = json::parse(bash(script, words).out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << script;
    EXPECT_EQ(result.value("stderr", "").find("carrel: "), std::string::npos) << result;
    const Run run = bash(script, options);
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = run.err.find("carrel: ", at)) != std::string::npos; ++at) {
      ++lines;
    }
    EXPECT_EQ(lines, told.empty() ? 0U : 1U) << script << "\n" << run.err;
    EXPECT_NE(run.err.find(told), std::string::npos) << script << "\n" << run.err;
    EXPECT_EQ(run.out.find("carrel"), std::string::npos) << run.out;
    return result.is_object() ? result : json::object();
  }
};
CARREL_AS_BOTH(Causes);

TEST_P(Causes, TimeLimit) {
  const json result = once("sleep 100", {"--timeout", "1"}, "(see --timeout)");
  EXPECT_EQ(option_for(result, "timeout"), "--timeout") << result;
  const Box box(GetParam());
  EXPECT_EQ(option_for(box.result("sleep 100", {"--timeout", "1"}), "timeout"), "--timeout");
}

TEST_P(Causes, AFileSystemInMemoryIsFull) {
  const std::string script = "head -c 20M /dev/zero > /workspace/x";
  const json result = once(script, {"--disk", "4m"}, "(see --disk, --tmp, --memory)");
  EXPECT_EQ(option_for(result, "disk"), "--disk, --tmp, --memory") << result;
  const Box box(GetParam(), {"--disk", "4m"});
  EXPECT_EQ(option_for(box.result(script), "disk"), "--disk, --tmp, --memory");
}

TEST_P(Causes, Memory) {
  const std::string script = "python3 -c 'x = bytearray(200 << 20)'; exit $?";
  const json result = once(script, {"--memory", "64m"}, "(see --memory)");
  EXPECT_EQ(option_for(result, "memory"), "--memory") << result;
  const Box box(GetParam(), {"--memory", "64m"});
  EXPECT_EQ(option_for(box.result(script), "memory"), "--memory");
}

TEST_P(Causes, Processes) {
  const std::string code = "import os, time\nwhile os.fork() > 0:\n  pass\ntime.sleep(600)\n";
  const json result = json::parse(python(code, {"--pids", "20", "--json"}).out, nullptr, false);
  EXPECT_EQ(option_for(result, "processes"), "--pids") << result;
  const Run run = python(code, {"--pids", "20"});
  EXPECT_NE(run.err.find("carrel: exit status 1; the limit of 20 processes was reached"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("--pids"), std::string::npos) << run.err;
}

TEST_P(Causes, NoNetwork) {
  const std::string kOption = "--network allow=HOST";
  for (const char* script : {"getent hosts example.org", "echo > /dev/tcp/192.0.2.1/80",
                             "python3 -c 'import socket; socket.create_connection((\"pypi.org\", "
                             "443))'"}) {
    const json result = once(script, {}, "the sandbox has no network");
    EXPECT_EQ(option_for(result, "no_network"), kOption) << script << result;
  }
  EXPECT_EQ(option_for(once("false", {}, ""), "no_network"), "");
  EXPECT_EQ(option_for(once("getent hosts localhost; false", {}, ""), "no_network"), "");
  EXPECT_EQ(option_for(once("getent hosts example.org; true", {}, ""), "no_network"), "");
}

TEST_P(Causes, NoNetworkIsOfTheCommandThatWantedOne) {
  const Box box(GetParam());
  EXPECT_EQ(option_for(box.result("false"), "no_network"), "");
  EXPECT_NE(option_for(box.result("getent hosts example.org"), "no_network"), "");
  EXPECT_EQ(option_for(box.result("false"), "no_network"), "");
  EXPECT_EQ(box.sh("getent hosts example.org; true").status, 0);
  EXPECT_EQ(option_for(box.result("false"), "no_network"), "");
  const Run run = box.exec({"getent", "hosts", "example.org"});
  EXPECT_TRUE(says_one_line(run, "the sandbox has no network")) << run.err;
  // It is told beside a time limit as well: who waits for a network says nothing himself.
  const json late = box.result("getent hosts example.org; sleep 100", {"--timeout", "1"});
  EXPECT_NE(option_for(late, "no_network"), "") << late;
  EXPECT_NE(option_for(late, "timeout"), "") << late;
}

// A lookup is answered at once, and so that nobody asks again.
TEST_P(Causes, WithoutANetworkNoNameIsKnown) {
  const std::string script =
      "import socket\n"
      "try:\n  socket.getaddrinfo('example.org', 443)\n"
      "except socket.gaierror as e:\n  print(e.errno == socket.EAI_NONAME)\n";
  EXPECT_EQ(python(script).out, "True\n");
  const Box box(GetParam());
  EXPECT_EQ(box.exec({"python3", "-c", script}).out, "True\n");
}

TEST_P(Causes, WithoutANetworkPackageManagersGiveUpAtOnce) {
  const std::string tries = "printenv PIP_RETRIES npm_config_fetch_retries";
  EXPECT_EQ(bash(tries).out, "1\n0\n");
  EXPECT_EQ(bash(tries, {"--network", "allow=example.org"}).out, "");
  EXPECT_EQ(bash(tries, {"--env", "PIP_RETRIES=7"}).out, "7\n0\n");
  for (const std::string tool : {"pip3 download requests", "npm install left-pad"}) {
    if (bash("command -v " + tool.substr(0, tool.find(' '))).status != 0) {
      std::cout << "this host has no " << tool.substr(0, tool.find(' ')) << "\n";
      continue;
    }
    // Time enough for a busy machine, and not for those who ask again and again.
    const json result = once(tool, {"--timeout", "50"}, "the sandbox has no network");
    EXPECT_EQ(option_for(result, "timeout"), "") << result;
    EXPECT_NE(option_for(result, "no_network"), "") << result;
  }
}

TEST_P(Causes, DeniedName) {
  const json result = once("getent hosts elsewhere.example.net",
                           {"--network", "allow=other.example.org"}, "elsewhere.example.net");
  EXPECT_EQ(option_for(result, "denied"), "--network allow=elsewhere.example.net") << result;
  EXPECT_EQ(option_for(result, "no_network"), "") << result;
  const Box box(GetParam(), {"--network", "allow=other.example.org"});
  const std::string connects =
      "python3 -c 'import socket; s = socket.create_connection((\"192.0.2.1\", 81)); "
      "s.send(b\"x\"); s.recv(1)'";
  EXPECT_EQ(option_for(box.result(connects), "denied"), "--network allow=tcp:192.0.2.1:81");
  EXPECT_EQ(option_for(box.result("false"), "denied"), "");
  // What stands there can be put into a shell.
  const json odd = box.result("getent hosts 'a;touch${IFS}x.example.net'; false");
  EXPECT_EQ(option_for(odd, "denied").find(';'), std::string::npos) << odd;
}

}  // namespace
}  // namespace carrel::test
