// Mounts: what the policy says about a host path, and why.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class Mounts : public CarrelTest {
 protected:
  // A folder of the working directory; its absolute path.
  std::string folder(const std::string& name) const {
    const std::string path = place().work(GetParam()) + "/" + name;
    EXPECT_EQ(::mkdir(path.c_str(), 0755), 0) << path;
    place().give(path, GetParam());
    return path;
  }
  // A carrel.toml in a folder of its own, which no test mounts.
  std::string config(const std::string& text) const {
    if (::access((place().work(GetParam()) + "/conf").c_str(), F_OK) != 0) {
      folder("conf");
    }
    return file("conf/lists.toml", text);
  }

  json check(const std::string& path, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"mount", "check", "--json"});
    options.insert(options.end(), {"--", path});
    const Run run = carrel(options);
    const json verdict = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(verdict.is_object()) << run.out << run.err;
    if (!verdict.is_object()) {
      return json::object();
    }
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(run.status, verdict.value("allowed", false) ? 0 : 125) << run.out;
    EXPECT_EQ(verdict.value("mode", "") == "none", !verdict.value("allowed", false)) << run.out;
    return verdict;
  }
  std::string rule(const std::string& path, std::vector<std::string> options = {}) const {
    return check(path, std::move(options)).value("rule", "");
  }
};
CARREL_AS_BOTH(Mounts);

// R137
TEST_P(Mounts, CheckTellsVerdictReasonRuleRealPathAndMode) {
  const std::string data = folder("data");
  const json verdict = check("data");
  EXPECT_EQ(verdict["allowed"], true);
  EXPECT_EQ(verdict["rule"], "command_line");
  EXPECT_EQ(verdict["path"], "data");
  EXPECT_EQ(verdict["real_path"], data);
  EXPECT_EQ(verdict["mode"], "read-only");
  EXPECT_EQ(check(data, {"--rw"})["mode"], "read-write");
  const Run text = carrel({"mount", "check", data});
  EXPECT_EQ(text.status, 0);
  for (const std::string& word :
       {std::string("allowed"), data, std::string("read-only"), std::string("command_line")}) {
    EXPECT_NE(text.out.find(word), std::string::npos) << text.out;
  }
  const Run refusal = carrel({"mount", "check", "/etc"});
  EXPECT_EQ(refusal.status, 125);
  EXPECT_NE(refusal.out.find("refused"), std::string::npos) << refusal.out;
  EXPECT_NE(refusal.out.find("/etc/"), std::string::npos) << refusal.out;
}

// R121, R122
TEST_P(Mounts, ForbiddenPathsAndWhatContainsThemAreRefusedEvenIfListed) {
  const std::string lists = config("allowed_read_paths = [\"/\"]\nallowed_write_paths = [\"/\"]\n");
  const std::string home = place().home(GetParam());
  const std::string own = home.substr(0, home.rfind('/'));  // HOME
  for (const std::string& path : {std::string("/"),
                                  std::string("/etc"),
                                  std::string("/home"),
                                  std::string("/var"),
                                  std::string("/run"),
                                  std::string("/root"),
                                  std::string("/root/.ssh/x"),
                                  std::string("/root/.config/x"),
                                  std::string("/proc"),
                                  std::string("/proc/1"),
                                  std::string("/sys"),
                                  std::string("/dev"),
                                  std::string("/dev/null"),
                                  std::string("/etc/shadow"),
                                  std::string("/etc/passwd"),
                                  std::string("/etc/sudoers"),
                                  std::string("/var/run/docker.sock"),
                                  std::string("/boot"),
                                  std::string("/etc/ssh"),
                                  std::string("//etc/./passwd"),
                                  std::string("/usr/../etc"),
                                  std::string("/proc/self/root/etc"),
                                  home,
                                  home + "/run",
                                  own,
                                  own + "/.ssh",
                                  own + "/.config/x",
                                  own + "/.aws",
                                  own + "/.gnupg"}) {
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{}, std::vector<std::string>{"--config", lists}}) {
      const json verdict = check(path, options);
      EXPECT_EQ(verdict["allowed"], false) << path;
      const std::string why = verdict.value("rule", "");
      EXPECT_TRUE(why == "forbidden" || why == "above_forbidden" || why == "credential_name")
          << path << " " << verdict.dump();
    }
  }
}

// R121: what is in root's home is judged as in anybody's.
TEST_P(Mounts, AProjectInRootsHomeMayBeMountedAndCopied) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  ASSERT_EQ(::mount("none", "/root", "tmpfs", 0, "mode=0755"), 0);  // in this test's namespace
  ASSERT_EQ(::mkdir("/root/project", 0755), 0);
  write_text("/root/project/main", "from root's home\n");
  place().give("/root/project", GetParam());
  EXPECT_EQ(rule("/root/project"), "command_line");
  EXPECT_EQ(rule("/root/project", {"--rw"}), "command_line");
  EXPECT_EQ(rule("/root"), "forbidden");
  EXPECT_EQ(rule("/root/.bash_history"), "forbidden");
  const Options there{.directory = "/root/project"};
  const Run copied = carrel({"run", "--workspace-from", ".", "--", "cat", "main"}, there);
  EXPECT_EQ(copied.out, "from root's home\n") << copied.err;
  const Run mounted = carrel({"run", "--mount", ".:/data:rw", "--", "sh", "-c",
                              "cat /data/main; echo written > /data/new"},
                             there);
  EXPECT_EQ(mounted.out, "from root's home\n") << mounted.err;
  EXPECT_EQ(read_text("/root/project/new"), "written\n");
  EXPECT_EQ(::umount2("/root", MNT_DETACH), 0);
}

// R119, R120, R134
TEST_P(Mounts, ListsDecide) {
  const std::string data = folder("data");
  const std::string out = folder("out");
  folder("data2");
  const std::string lists =
      config("allowed_read_paths = [\"" + data + "\"]\nallowed_write_paths = [\"" + out + "\"]\n");
  EXPECT_EQ(rule("data", {"--config", lists}), "allowed_read_paths");
  EXPECT_EQ(rule("data", {"--rw", "--config", lists}), "not_writable");
  EXPECT_EQ(rule("out", {"--config", lists}), "allowed_write_paths");
  EXPECT_EQ(rule("out", {"--rw", "--config", lists}), "allowed_write_paths");
  EXPECT_EQ(rule("data2", {"--config", lists}), "not_allowed");
  for (const std::string text :
       {"allowed_read_paths = []\n", "[run]\nallowed_write_paths = []\n"}) {
    EXPECT_EQ(rule("data", {"--config", config(text)}), "not_allowed") << text;
  }
}

// R123, R124
TEST_P(Mounts, CredentialsAreRefusedAndHidden) {
  folder("proj");
  folder("proj/.kube");
  file("proj/.env", "KEY=1");
  file("proj/main.py", "");
  EXPECT_EQ(rule("proj/.kube"), "credential_name");
  EXPECT_EQ(rule("proj/.env"), "credential_name");
  const json verdict = check("proj");
  EXPECT_EQ(verdict["allowed"], true);
  ASSERT_EQ(verdict["hidden"].size(), 2U) << verdict.dump();
  EXPECT_EQ(verdict["hidden"][0]["path"], ".env");
  EXPECT_EQ(verdict["hidden"][1]["path"], ".kube");
}

// R125
TEST_P(Mounts, LinksThatLeadAwayAreRefused) {
  const std::string data = folder("data");
  const std::string other = folder("other");
  ASSERT_EQ(::symlink("../other", (data + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", (data + "/etc").c_str()), 0);
  const std::string lists = config("allowed_read_paths = [\"" + data + "\"]\n");
  EXPECT_EQ(rule("data/link", {"--config", lists}), "link");
  EXPECT_EQ(rule("data/etc", {"--config", lists}), "above_forbidden");
  EXPECT_EQ(rule("data/link"), "link");
  EXPECT_EQ(check("data/link")["real_path"], other);
}

// R129, R132, R135
TEST_P(Mounts, PathsAreDataAndNothingIsCreated) {
  EXPECT_EQ(rule("none"), "missing");
  EXPECT_NE(::access((place().work(GetParam()) + "/none").c_str(), F_OK), 0);
  EXPECT_EQ(rule("~"), "source");
  EXPECT_EQ(rule("~/x"), "source");
  for (const std::string name : {"a:b,ro", "-v", "a b", "a\nb", "$(id)"}) {
    const std::string path = folder(name);
    EXPECT_EQ(check(name)["real_path"], path);
  }
}

// R135, R136
TEST_P(Mounts, PoliciesThatCannotBeReadAllowNothing) {
  folder("data");
  for (const std::string text : {"allowed_read_paths = [\"\"]\n", "allowed_read_paths = [\"~\"]\n",
                                 "allowed_read_paths = [\"data\"]\n", "allowed_read_paths = \n",
                                 "allowed_read_paths = [5]\n", "allowed_read_path = []\n"}) {
    EXPECT_EQ(rule("data", {"--config", config(text)}), "policy") << text;
  }
  EXPECT_EQ(rule("data", {"--config", "/nonexistent/carrel.toml"}), "policy");
}

// R136
TEST_P(Mounts, ThePolicyAndItsFolderAreNeverMounted) {
  folder("data");
  config("allowed_write_paths = [\"/\"]\n");
  EXPECT_EQ(rule("data", {"--config", "conf/lists.toml"}), "allowed_write_paths");
  EXPECT_EQ(rule("conf", {"--config", "conf/lists.toml"}), "forbidden");
  EXPECT_EQ(rule("conf/lists.toml", {"--config", "conf/lists.toml"}), "forbidden");
  EXPECT_EQ(rule(".", {"--config", "conf/lists.toml"}), "above_forbidden");
}

TEST_P(Mounts, AProjectsOwnFileGrantsNothing) {
  folder("data");
  file("carrel.toml", "allowed_write_paths = [\"/\"]\n");
  EXPECT_EQ(rule("data"), "policy");
  file("carrel.toml", "allowed_write_paths = []\n");
  EXPECT_EQ(rule("data"), "not_allowed");
}

// C01
TEST_P(Mounts, TheProgramCannotBeReplaced) {
  const std::string program = place().program();
  const std::string beside = program.substr(0, program.rfind('/'));
  EXPECT_EQ(rule(program, {"--rw"}), "forbidden");
  EXPECT_EQ(check(beside, {"--rw"})["allowed"], false);
  EXPECT_EQ(check(beside)["allowed"], false);
}

TEST_P(Mounts, WrongUsageIsSaid) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"mount"},
                                                {"mount", "check"},
                                                {"mount", "chek", "/tmp"},
                                                {"mount", "check", "/tmp", "/tmp"},
                                                {"mount", "check", ""}}) {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 2) << run.out;
    EXPECT_TRUE(says_one_line(run, "carrel"));
  }
}

}  // namespace
}  // namespace carrel::test
