// Walls that bubblewrap builds: what is particular to them. Everything else is in the tests that
// are run with every backend.
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/in_namespaces.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class Bubblewrap : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped() && ::geteuid() != 0) {
      GTEST_SKIP() << "only root can put another program in the place of bubblewrap";
    }
  }

  // A sandbox of this backend on a host whose bubblewrap is this program. It is only seen in a
  // mount namespace of the run's own.
  Run with(const std::string& program, std::vector<std::string> words) const {
    words.insert(words.begin() + 1, {"--backend", "bubblewrap"});
    return Process(with_program_at(launch(std::move(words)), "/usr/bin/bwrap", program))
        .wait(std::chrono::seconds(60));
  }

  std::string program(const std::string& name, const std::string& text) const {
    const std::string path = file(name, text);
    EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    return path;
  }

  // A bubblewrap that does something else than it is told. `change` is Python that works on the
  // list `words`.
  std::string changed(const std::string& change) const {
    const std::string real = place().work(GetParam()) + "/bwrap.real";
    std::string binary = read_text("/usr/bin/bwrap").value_or("");
    file("bwrap.real", binary);
    EXPECT_EQ(::chmod(real.c_str(), 0755), 0);
    return program("bwrap.changed",
                   "#!/usr/bin/python3\n"
                   "import os, sys\n"
                   "rest = sys.argv[1:]\n"
                   "words = []\n"
                   "def drop(*run):\n"
                   "    at = next(i for i in range(len(words)) if words[i:i + len(run)] == "
                   "list(run))\n"
                   "    del words[at:at + len(run)]\n"
                   "def swap(old, new):\n"
                   "    at = next(i for i in range(len(words)) if words[i:i + len(old)] == old)\n"
                   "    words[at:at + len(old)] = new\n"
                   "def last(word):\n"
                   "    return len(words) - 1 - words[::-1].index(word)\n"
                   "if rest[0] == '--args':\n"
                   "    with open(int(rest[1]), closefd=False) as given:\n"
                   "        words = given.read().split('\\0')[:-1]\n"
                   "    rest = rest[2:]\n"
                   "    " +
                       change + "\nos.execv('" + real + "', ['bwrap'] + words + rest)\n");
  }
};
CARREL_AS_BOTH(Bubblewrap);

TEST_P(Bubblewrap, InfoTellsWhoBuiltTheWalls) {
  const Box box(GetParam(), {"--backend", "bubblewrap"});
  const json info = box.info();
  EXPECT_EQ(info["backend"], "bubblewrap");
  EXPECT_EQ(info["isolation"], "namespace");
  std::string built_by;
  for (const json& row : info["enforcement"]) {
    built_by = row["name"] == "built by" ? row["by"].get<std::string>() : built_by;
  }
  EXPECT_TRUE(built_by.starts_with("bubblewrap ")) << info["enforcement"];
  EXPECT_EQ(box.sh("cd /tmp; echo $((6*7))").out, "42\n");
  EXPECT_EQ(box.sh("pwd").out, "/tmp\n");
}

TEST_P(Bubblewrap, ThroughTheWrapperOfTheseTestsItWorks) {
  const Run run = with(changed("pass"), {"run", "--", "echo", "in"});
  EXPECT_EQ(run.out, "in\n") << run.err;
  EXPECT_EQ(run.status, 0);
}

// B-1, R14: what was asked for and is not there is no sandbox, whoever was to build it
TEST_P(Bubblewrap, AWallThatIsLeftOutIsNoSandbox) {
  const std::string data = place().work(GetParam()) + "/data";
  const std::string other = place().work(GetParam()) + "/other";
  for (const std::string& path : {data, other}) {
    ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
    place().give(path, GetParam());
  }
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"drop('--unshare-net')", "the host's namespace 'net'"},
      {"drop('--unshare-ipc')", "the host's namespace 'ipc'"},
      {"drop('--unshare-pid'); drop('--as-pid-1')", "proc"},
      {"drop('--seccomp', '5')", "filter of system calls"},
      {"drop('--remount-ro', '/')", "not protected"},
      {"swap(['--ro-bind', '/usr'], ['--bind', '/usr'])", "usr"},
      {"at = words.index('/proc/kallsyms'); del words[at - 4:at + 1]", "proc/kallsyms"},
      {"at = words.index('/proc/meminfo'); del words[at - 4:at + 1]", "proc/meminfo"},
      {"drop('--ro-bind', '/proc/sys', '/proc/sys')", "proc/sys"},
      {"drop('--hostname', 'sandbox')", "hostname"},
      {"words += ['--cap-add', 'ALL']", "privileges"},
      {"words[last('/tmp') - 2] = '1073741824'", "tmp"},
      {"swap(['--uid', '1000'], ['--uid', '1001'])", "another user"},
      {"words += ['--bind', '/usr', '/data']", "data"},
      {"words += ['--ro-bind', '/etc/alternatives', '/opt']", "opt"},
  };
  for (const auto& row : kTable) {
    const Run run =
        with(changed(row.change), {"run", "--mount", data + ":/data", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << row.change;
    EXPECT_TRUE(says_one_line(run, "rely on these walls")) << row.change;
    EXPECT_NE(run.err.find(row.said), std::string::npos) << row.change << ": " << run.err;
  }
}

// CRITICAL for what is mounted: the folder that was judged, and no other that has its name now.
TEST_P(Bubblewrap, AnotherFolderInThePlaceOfAMountIsNoSandbox) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const Run run = with(changed("words[last('/data') - 1] = '/etc/alternatives'"),
                       {"run", "--mount", data + ":/data", "--", "echo", "came in"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "is data")) << run.err;
}

TEST_P(Bubblewrap, WithoutItThereIsNoSandbox) {
  const Run missing = with(file("nothing", ""), {"run", "--", "true"});
  EXPECT_EQ(missing.status, 125);
  EXPECT_TRUE(says_one_line(missing, "bubblewrap is not installed"));
  const Run old = with(program("old", "#!/bin/sh\necho bubblewrap 0.6.2\n"), {"run", "--", "true"});
  EXPECT_EQ(old.status, 125);
  EXPECT_TRUE(says_one_line(old, "bubblewrap 0.6.2 is too old"));
}

TEST_P(Bubblewrap, ItsComplaintsAreTold) {
  const Run run = with(changed("words += ['--bind', '/nowhere/at/all', '/mnt']"),
                       {"run", "--", "echo", "came in"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "/nowhere/at/all")) << run.err;
}

TEST_P(Bubblewrap, WhatItCannotDoIsRefused) {
  const Run run = carrel({"run", "--backend", "bubblewrap", "--writable-root", "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "is read-only"));
}

}  // namespace
}  // namespace carrel::test
