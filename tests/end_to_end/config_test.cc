// carrel.toml: the names of the settings, their defaults, and what is wrong with a file.
#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class Config : public CarrelTest {
 protected:
  // The settings of a sandbox that is made with this carrel.toml.
  json settings_with(const std::string& text) const {
    file("settings.toml", text);
    Box box(GetParam(), {"--config", "settings.toml"});
    return box.info()["settings"];
  }
};
CARREL_AS_BOTH(Config);

// R201, B-45
TEST_P(Config, AbsentSectionIsTheDefaults) {
  for (const std::string text : {"", "[sandbox]\n", "# nothing\n"}) {
    json settings = settings_with(text);
    EXPECT_EQ(settings["image"], "host");
    EXPECT_EQ(settings["workdir"], "/workspace");
    EXPECT_EQ(settings["memory"], "512m");
    EXPECT_EQ(settings["cpus"], "1");
    EXPECT_EQ(settings["timeout"], "300");
    EXPECT_EQ(settings["network"], "none");
    EXPECT_EQ(settings["pids"], "512");
    EXPECT_EQ(settings["tmp"], "100m");
  }
}

// R201
TEST_P(Config, NamesOfTheEarlierSystemsAreAccepted) {
  json settings = settings_with(
      "[sandbox]\nimage = \"host\"\nwork_dir = \"/tmp\"\nmemory_limit = \"256m\"\n"
      "cpu_limit = 0.5\ntimeout = 100\nnetwork_enabled = false\n");
  EXPECT_EQ(settings["workdir"], "/tmp");
  EXPECT_EQ(settings["memory"], "256m");
  EXPECT_EQ(settings["cpus"], "0.5");
  EXPECT_EQ(settings["timeout"], "100");
}

// R203
TEST_P(Config, OneShotNamesAreAccepted) {
  file("carrel.toml",
       "[run]\nimage_name = \"host\"\nmemory_limit = \"64m\"\ncpu_limit = 1.0\n"
       "timeout_seconds = 1\npids_limit = 10\nnetwork_enabled = false\n"
       "allowed_read_paths = []\nallowed_write_paths = []\n");
  Run run = python("x = bytearray(200 << 20)");
  EXPECT_EQ(run.status, 137) << run.err;
  EXPECT_EQ(bash("sleep 600").status, 124);
  Run forks = python(
      "import os, time\n"
      "try:\n"
      "  for n in range(50):\n"
      "    if os.fork() == 0: time.sleep(600)\n"
      "except BlockingIOError: print(n)\n");
  EXPECT_EQ(forks.out, "9\n") << forks.err;
}

// R203: granting is not built, so it is refused and not ignored
TEST_P(Config, PathListsAreRefusedByName) {
  file("carrel.toml", "[run]\nallowed_read_paths = [\"/etc\"]\n");
  Run run = bash("echo ran");
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "allowed_read_paths"));
}

// R204
TEST_P(Config, UnknownKeyIsNamedWithTheNearest) {
  file("carrel.toml", "[sandbox]\nmemory_limt = \"1g\"\n");
  Run run = bash("echo ran");
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "memory_limt"));
  EXPECT_NE(run.err.find("memory_limit"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("carrel.toml:2"), std::string::npos) << run.err;
}

// R204
TEST_P(Config, WrongTypesAndValuesAreErrorsThatNameTheKey) {
  struct Case {
    std::string line;
    std::string key;
  };
  for (const Case& one :
       {Case{"memory = true", "memory"}, Case{"memory = \"0\"", "memory"},
        Case{"memory = -1", "memory"}, Case{"memory = 1.5", "memory"},
        Case{"memory = [\"1g\"]", "memory"}, Case{"cpus = \"many\"", "cpus"},
        Case{"pids = 1.5", "pids"}, Case{"pids = 0", "pids"}, Case{"timeout = 0", "timeout"},
        Case{"timeout = \"soon\"", "timeout"}, Case{"writable_root = \"false\"", "writable_root"},
        Case{"writable_root = 1", "writable_root"}, Case{"network = \"ful\"", "network"},
        Case{"env = 5", "env"}, Case{"image = \"\"", "image"}, Case{"user = \"a b\"", "user"},
        Case{"memory = \"1g\"\nmemory = \"2g\"", "memory"},
        Case{"memory = \"1g\"\nmemory_limit = \"2g\"", "memory"}}) {
    file("carrel.toml", "[sandbox]\n" + one.line + "\n");
    Run run = bash("echo ran");
    EXPECT_EQ(run.status, 125) << one.line;
    EXPECT_TRUE(says_one_line(run, one.key)) << one.line;
  }
}

// R204
TEST_P(Config, FileThatIsNoTomlIsOneLine) {
  for (const std::string& text :
       {std::string("[sandbox"), std::string("memory = "), std::string("\xff\xfe\0\1", 4),
        std::string("a = \"\0\"\n", 8), std::string(200'000, '#'), std::string("[[[[[[["),
        "x = " + std::string(5000, '[')}) {
    file("carrel.toml", text);
    Run run = bash("echo ran");
    EXPECT_EQ(run.status, 125) << text.substr(0, 20);
    EXPECT_TRUE(says_one_line(run, "carrel.toml")) << text.substr(0, 20);
  }
}

// R205
TEST_P(Config, PartialSectionKeepsTheOtherDefaults) {
  json settings = settings_with("[sandbox]\ntimeout = 5\n");
  EXPECT_EQ(settings["timeout"], "5");
  EXPECT_EQ(settings["memory"], "512m");
  EXPECT_EQ(settings["pids"], "512");
}

// R205
TEST_P(Config, CommandLineGoesOverTheFile) {
  file("carrel.toml",
       "[sandbox]\nmemory = \"256m\"\ntimeout = 5\nenv = { A = \"1\", B = \"2\" }\n");
  Box box(GetParam(), {"--memory", "128m", "--env", "B=3"});
  json settings = box.info()["settings"];
  EXPECT_EQ(settings["memory"], "128m");
  EXPECT_EQ(settings["timeout"], "5");
  EXPECT_EQ(box.sh("echo $A $B").out, "1 3\n");
}

// The values of variables can be secrets: no file and no answer shows them.
TEST_P(Config, ValuesOfVariablesAreNotStored) {
  Box box(GetParam(), {"--env", "TOKEN=sesame-9d1"});
  EXPECT_EQ(box.sh("echo $TOKEN").out, "sesame-9d1\n");
  EXPECT_EQ(box.info().dump().find("sesame"), std::string::npos);
  EXPECT_EQ(box.info()["settings"]["env"], "TOKEN");
  EXPECT_EQ(read_text(place().home(GetParam()) + "/state.db").value_or("").find("sesame"),
            std::string::npos);
}

}  // namespace
}  // namespace carrel::test
