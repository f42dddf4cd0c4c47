// `carrel env`: what is in force, and where it comes from.
#include <nlohmann/json.hpp>

#include "support/api.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Env : public CarrelTest {
 protected:
  [[nodiscard]] json env(const Options& how = {}, std::vector<std::string> options = {}) const {
    std::vector<std::string> words = {"env", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const Run run = carrel(words, how);
    EXPECT_EQ(run.status, 0) << run.err;
    json object = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(object.is_object()) << run.out;
    return object.is_object() ? object : json::object();
  }
};
CARREL_AS_BOTH(Env);

TEST_P(Env, TellsTheHomeAndWhereItComesFrom) {
  const std::string home = place().home(GetParam());
  json given = env();
  EXPECT_EQ(given["home"]["value"], home);
  EXPECT_EQ(given["home"]["from"], "CARREL_HOME");
  EXPECT_EQ(given["run"]["value"], home + "/run");
  EXPECT_EQ(given["socket"]["value"], home + "/run/api.sock");
  EXPECT_EQ(given["socket"]["answers"], false);
  json none = env({.environment = {"CARREL_HOME=", "HOME=/h", "XDG_DATA_HOME="}});
  EXPECT_EQ(none["home"]["value"], as_root() ? "/var/lib/carrel" : "/h/.local/share/carrel");
  json data = env({.environment = {"CARREL_HOME=", "HOME=/h", "XDG_DATA_HOME=/d"}});
  EXPECT_EQ(data["home"]["value"], as_root() ? "/var/lib/carrel" : "/d/carrel");
  EXPECT_EQ(carrel({"env"}, {.environment = {"CARREL_HOME=not/absolute"}}).status, 2);
}

TEST_P(Env, TellsWhetherADaemonAnswers) {
  Daemon daemon(GetParam());
  EXPECT_EQ(env()["socket"]["answers"], true) << daemon.log();
  EXPECT_EQ(env()["socket"]["value"], daemon.socket());
  EXPECT_EQ(daemon.stop(), 0);
  EXPECT_EQ(env()["socket"]["answers"], false);
}

TEST_P(Env, ShellFormIsOneAssignmentWhateverIsInIt) {
  const std::string odd = place().home(GetParam()) + "/it's \"$(id)\" `x`";
  const Run run = carrel({"env", "--shell"}, {.environment = {"CARREL_HOME=" + odd}});
  EXPECT_EQ(run.status, 0) << run.err;
  Launch shell = launch({});
  shell.program = "/bin/sh";
  shell.arguments = {"-c", run.out + "printf %s \"$CARREL_HOME\""};
  Process process(shell);
  EXPECT_EQ(process.wait(seconds(10)).out, odd);
}

TEST_P(Env, TellsTheConfigurationAndWhatItSays) {
  EXPECT_EQ(env()["configuration"], nullptr);
  const std::string own = file("carrel.toml", "[run]\nmemory = \"100m\"\n");
  json found = env();
  EXPECT_EQ(found["configuration"]["value"], own);
  EXPECT_EQ(found["settings"]["run.memory"]["value"], "100m");
  EXPECT_EQ(found["settings"]["run.memory"]["from"], own);
  EXPECT_EQ(found["settings"]["run.pids"]["from"], "default");
  EXPECT_EQ(found["settings"]["create.memory"]["from"], "default");
  const std::string other = file("other.toml", "memory = \"1g\"\n");
  EXPECT_EQ(env({}, {"--config", other})["settings"]["create.memory"]["from"], other);
  EXPECT_NE(carrel({"env"}).out.find("run.memory"), std::string::npos);
  file("carrel.toml", "memory = \"64g\"\n");
  const Run wider = carrel({"env"});
  EXPECT_EQ(wider.status, 125) << wider.out;
  EXPECT_NE(wider.err.find("carrel.toml"), std::string::npos) << wider.err;
  EXPECT_NE(wider.out.find("home"), std::string::npos) << "the places are told all the same";
}

TEST_P(Env, TellsVariablesAndThoseThatNothingReads) {
  const Options how{
      .environment = {"CARREL_MODEL=openai:m", "CARREL_TOKEN=s3cret", "CARREL_HOEM=/typo"}};
  const Run run = carrel({"env"}, how);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("openai:m"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("s3cret"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("CARREL_HOEM"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("nothing reads it"), std::string::npos) << run.out;
  EXPECT_EQ(env(how).dump().find("s3cret"), std::string::npos);
}

}  // namespace
}  // namespace carrel::test
