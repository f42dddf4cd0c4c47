// Walls that gVisor's runtime builds, and a kernel of its own behind them: what is particular to
// them. Everything else is in the tests that are run with every backend.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/in_namespaces.h"
#include "support/ports.h"
#include "support/tar_entry.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// The same of every release.
constexpr std::string_view kVersion = "#1 SMP Sun Jan 10 15:06:54 PST 2016";
const std::vector<std::string> kGvisor = {"--backend", "oci", "--runtime", "runsc"};

class Gvisor : public WithServers<CarrelTest> {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    ASSERT_EQ(::access("/usr/bin/runsc", X_OK), 0) << "install the package 'runsc'";
  }

  // `carrel run` with these options and words behind gVisor.
  Run run(std::vector<std::string> words) const {
    words.insert(words.begin(), "run");
    words.insert(words.begin() + 1, kGvisor.begin(), kGvisor.end());
    return carrel(std::move(words), {.timeout_seconds = 60});
  }

  static std::vector<std::string> with_gvisor(std::vector<std::string> options) {
    options.insert(options.begin(), kGvisor.begin(), kGvisor.end());
    return options;
  }

  // The porters of all sandboxes: the first process of each, and the one that works below it.
  struct Porters {
    pid_t first = 0;
    pid_t works = 0;
  };
  static Porters porters() {
    const std::vector<HostProcess> all = processes_of("porch");
    for (const HostProcess& below : all) {
      for (const HostProcess& above : all) {
        if (below.parent == above.pid) {
          return {above.pid, below.pid};
        }
      }
    }
    return {};
  }

  static std::string by(const json& info, const std::string& name) {
    for (const json& row : info["enforcement"]) {
      if (row["name"] == name) {
        return row["by"].get<std::string>();
      }
    }
    return {};
  }
};
CARREL_AS_BOTH(Gvisor);

TEST_P(Gvisor, TheKernelIsItsOwn) {
  const Run told = run({"--", "bash", "-c", "cat /proc/version; id -u; pwd; echo no >&2"});
  EXPECT_EQ(told.status, 0) << told.err;
  EXPECT_NE(told.out.find(kVersion), std::string::npos) << told.out;
  EXPECT_TRUE(told.out.ends_with("\n1000\n/workspace\n")) << told.out;
  EXPECT_EQ(told.err, "no\n");
  EXPECT_EQ(run({"--", "bash", "-c", "exit 7"}).status, 7);
  EXPECT_EQ(run({"--", "/nowhere"}).status, 127);
}

TEST_P(Gvisor, ACommandsInputAndItsTimeAreItsOwn) {
  const Run slow = run({"--timeout", "2", "--", "bash", "-c", "echo begun; sleep 100"});
  EXPECT_EQ(slow.status, 124);
  EXPECT_EQ(slow.out, "begun\n");
  EXPECT_LT(slow.duration, patient(seconds(20)));
  const Run large = run({"--", "bash", "-c", "head -c 20000000 /dev/zero | tr '\\0' x"});
  EXPECT_EQ(large.out.size(), 20'000'000U) << large.err;
}

TEST_P(Gvisor, InfoTellsWhoseKernelItIs) {
  const Box box(GetParam(), kGvisor);
  const json info = box.info();
  EXPECT_EQ(info["backend"], "oci");
  EXPECT_EQ(info["isolation"], "gvisor");
  EXPECT_EQ(by(info, "isolation"), "gvisor");
  EXPECT_EQ(by(info, "kernel"), "gVisor");
  EXPECT_TRUE(by(info, "built by").starts_with("runsc ")) << by(info, "built by");
  EXPECT_NE(by(info, "built by").find("(platform "), std::string::npos) << by(info, "built by");
  EXPECT_EQ(by(info, "landlock"), "none");
  EXPECT_EQ(by(info, "clocks"), "time namespace");
}

TEST_P(Gvisor, AShellFilesAndCommandsAreAsElsewhere) {
  const Box box(GetParam(), kGvisor);
  EXPECT_EQ(box.sh("cd /tmp; X=42; echo $$ >pid").status, 0);
  EXPECT_EQ(box.sh("pwd; echo $X; cat pid | wc -l").out, "/tmp\n42\n1\n");
  const Run other = box.exec({"bash", "-c", "pwd; exit 3"});
  EXPECT_EQ(other.out, "/workspace\n");
  EXPECT_EQ(other.status, 3);
  const std::string given = file("given", std::string(3'000'000, 'g'));
  ASSERT_EQ(carrel({"cp", given, box.id() + ":/workspace/given"}).status, 0);
  EXPECT_EQ(box.sh("wc -c </workspace/given").out, "3000000\n");
  ASSERT_EQ(carrel({"cp", box.id() + ":/workspace/given", given + ".back"}).status, 0);
  EXPECT_EQ(read_text(given + ".back").value_or("").size(), 3'000'000U);
  const Run late = box.sh("sleep 100", {"--timeout", "1"});
  EXPECT_EQ(late.status, 124);
  EXPECT_EQ(box.sh("echo still").out, "still\n");
  const Run terminal = carrel({"exec", "-t", "--no-stdin", box.id(), "--", "tty"});
  EXPECT_NE(terminal.out.find("/dev/pts/"), std::string::npos) << terminal.out << terminal.err;
}

TEST_P(Gvisor, AForkOfItsWorkspaceHasTheSameWalls) {
  const Box box(GetParam(), with_gvisor({"--workspace", "w"}));
  EXPECT_EQ(box.sh("echo kept > a").status, 0);
  for (const std::string& named : {box.id(), std::string("w")}) {
    const Run fork = carrel({"fork", named});
    ASSERT_EQ(fork.status, 0) << fork.err;
    const std::string id = fork.out.substr(0, fork.out.find('\n'));
    const Run told = carrel({"sh", id, "cat a /proc/version"});
    EXPECT_TRUE(told.out.starts_with("kept\n")) << told.out << told.err;
    EXPECT_NE(told.out.find(kVersion), std::string::npos) << named << ": " << told.out;
    EXPECT_EQ(carrel({"rm", "--force", id}).status, 0);
  }
}

// Its kernel follows links that Linux does not follow.
TEST_P(Gvisor, NoFileOfAnArchiveGoesThroughALinkOfTheArchives) {
  const Box box(GetParam(), kGvisor);
  const std::string archive = tar_entry('2', "link", "", "/tmp") +
                              tar_entry('0', "link/through", "evil") +
                              tar_entry('0', "last", "here") + std::string(1024, '\0');
  const Run in = carrel({"cp", "-", box.id() + ":in/"}, {.input = archive});
  EXPECT_EQ(in.status, 125);
  EXPECT_NE(in.err.find("'link/through'"), std::string::npos) << in.err;
  EXPECT_EQ(box.sh("readlink in/link; cat in/last; find /tmp -name through").out, "/tmp\nhere");
}

TEST_P(Gvisor, LimitsEndWhoTakesTooMuch) {
  const Box box(GetParam(), with_gvisor({"--memory", "128m", "--pids", "20"}));
  const json eater = box.result("python3 -c 'x = bytearray(600 << 20); print(len(x))'");
  EXPECT_TRUE(eater["oom_killed"].get<bool>()) << eater;
  EXPECT_NE(eater["exit_code"], 0) << eater;
  const Run bomb = box.sh("for i in $(seq 60); do sleep 5 & done 2>&1 | grep -c -m1 fork");
  EXPECT_EQ(bomb.out, "1\n") << bomb.err;
  EXPECT_TRUE(eventually(seconds(20), [&] { return box.sh("echo alive").out == "alive\n"; }));
}

TEST_P(Gvisor, PausedItDoesNothing) {
  const Box box(GetParam(), kGvisor);
  EXPECT_EQ(box.sh("(while :; do date +%N >/tmp/beat; sleep 0.05; done) & echo on").out, "on\n");
  ASSERT_EQ(carrel({"pause", box.id()}).status, 0);
  EXPECT_NE(box.sh("true").status, 0);
  ASSERT_EQ(carrel({"resume", box.id()}).status, 0);
  EXPECT_EQ(box.sh("cat /tmp/beat >/tmp/one; for i in {1..200}; do cmp -s /tmp/beat /tmp/one || "
                   "{ echo beats; break; }; sleep 0.1; done")
                .out,
            "beats\n");
}

// gVisor sends it to a group of processes of which one ends while others are stopped.
TEST_P(Gvisor, NobodyIsToldOfAHangupByAPause) {
  const Box box(GetParam(), kGvisor);
  EXPECT_EQ(box.sh("trap 'echo hangup >>/tmp/hangup' HUP; for i in 1 2 3 4; do "
                   "(trap 'echo hangup >>/tmp/hangup' HUP; while :; do /bin/true; done) & done; "
                   "echo on")
                .out,
            "on\n");
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(carrel({"pause", box.id()}).status, 0);
    ASSERT_EQ(carrel({"resume", box.id()}).status, 0);
  }
  EXPECT_EQ(box.sh("test -e /tmp/hangup; echo $?").out, "1\n");
}

TEST_P(Gvisor, AWorkspaceIsSharedWithTheHost) {
  const std::string name = "gvisor" + std::to_string(::getpid());
  {
    const Box box(GetParam(), with_gvisor({"--workspace", name}));
    EXPECT_EQ(box.sh("echo kept >kept; chmod 600 kept").status, 0);
    EXPECT_EQ(carrel({"snapshot", box.id()}).status, 0);
    EXPECT_EQ(box.remove().status, 0);
  }
  const Run again = carrel({"run", "--workspace", name, "--", "cat", "kept"});
  EXPECT_EQ(again.out, "kept\n") << again.err;
  EXPECT_EQ(carrel({"workspace", "rm", name}).status, 0);
}

TEST_P(Gvisor, MountsAreWhatTheyWereAskedToBe) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const Run there = run({"--mount", data + ":/data:rw", "--mount", data + ":/other", "--", "bash",
                         "-c", "echo in >/data/in && ! echo in >/other/in2 && cat /other/in"});
  EXPECT_EQ(there.out, "in\n") << there.err;
  EXPECT_EQ(read_text(data + "/in").value_or(""), "in\n");
}

// No socket comes out of it: a process inside carries.
TEST_P(Gvisor, AServerInsideIsReachedByItsPort) {
  const Box box(GetParam(), kGvisor);
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  TcpClient early(port);
  EXPECT_EQ(early.read(), "");
  EXPECT_TRUE(early.failed());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  std::vector<std::unique_ptr<TcpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<TcpClient>(port));
    clients.back()->send("number " + std::to_string(i) + "\n");
  }
  for (int i = 7; i >= 0; --i) {
    TcpClient& client = *clients[static_cast<std::size_t>(i)];
    EXPECT_EQ(client.read_line(), "number " + std::to_string(i) + "\n");
    client.finish();
    EXPECT_EQ(client.read(), "end");
  }
  // A command may end who carries, as everything of its user; the next connection has another.
  (void)box.sh("kill -9 -1");
  EXPECT_TRUE(eventually(seconds(20), [&] { return box.sh("echo alive").out == "alive\n"; }));
  auto again = serve(box, echo_server("AF_INET", "127.0.0.1"));
  TcpClient later(port);
  later.send("later");
  later.finish();
  EXPECT_EQ(later.read(), "laterend");
}

// What it cannot do is said, never left out.
TEST_P(Gvisor, WhatItDoesNotHaveIsRefused) {
  const Run root = run({"--writable-root", "--", "true"});
  EXPECT_EQ(root.status, 125);
  EXPECT_TRUE(says_one_line(root, "behind gVisor is read-only"));
  const Run landlock = run({"--require", "landlock", "--", "true"});
  EXPECT_EQ(landlock.status, 125);
  EXPECT_TRUE(says_one_line(landlock, "gVisor's kernel has no Landlock"));
  const Box box(GetParam(), kGvisor);
  const Run snapshot = carrel({"snapshot", box.id()});
  EXPECT_EQ(snapshot.status, 125);
  EXPECT_TRUE(says_one_line(snapshot, "is in memory of its own kernel's"));
}

TEST_P(Gvisor, IsolationPicksItAndNothingWeaker) {
  const Run chosen = carrel({"run", "--isolation", "gvisor", "--", "uname", "-rv"});
  EXPECT_NE(chosen.out.find(kVersion), std::string::npos) << chosen.out << chosen.err;
  const Run weaker = carrel(
      {"run", "--isolation", "gvisor", "--backend", "native", "--runtime", "runsc", "--", "true"});
  EXPECT_EQ(weaker.status, 125);
}

// Clients come back, and what is on its way goes on.
TEST_P(Gvisor, APorterThatIsEndedIsReplaced) {
  const Box box(GetParam(), kGvisor);
  const Porters before = porters();
  EXPECT_EQ(box.sh("echo before").out, "before\n");
  // CRITICAL: of another number than a process's, everybody would be ended.
  ASSERT_GT(before.works, 1);
  ASSERT_EQ(::kill(before.works, SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(10), [&] { return box.sh("echo after").out == "after\n"; }));
}

TEST_P(Gvisor, WithItsFirstProcessEverythingEnds) {
  const Box box(GetParam(), kGvisor);
  const auto gvisors = [] {
    const std::vector<HostProcess> all = descendants();
    return std::count_if(all.begin(), all.end(), [](const HostProcess& one) {
      return one.name.starts_with("runsc") || one.name == "exe";
    });
  };
  EXPECT_GE(gvisors(), 2);
  const Porters before = porters();
  // CRITICAL: of another number than a process's, everybody would be ended.
  ASSERT_GT(before.first, 1);
  ASSERT_EQ(::kill(before.first, SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(5), [&] { return gvisors() == 0; }));
  EXPECT_NE(box.sh("true").status, 0);
}

class GvisorWalls : public Gvisor {
 protected:
  void SetUp() override {
    Gvisor::SetUp();
    if (!IsSkipped() && ::geteuid() != 0) {
      GTEST_SKIP() << "only root can put another program in the place of a runtime";
    }
  }

  // A sandbox on a host whose runsc is this program, which is only seen by this run.
  Run with(const std::string& program, std::vector<std::string> words) const {
    words.insert(words.begin() + 1, kGvisor.begin(), kGvisor.end());
    return Process(with_program_at(launch(std::move(words)), "/usr/bin/runsc", program))
        .wait(seconds(60));
  }

  // A runtime that builds something else than it is told: `change` is Python that works on the
  // bundle's `config` and on its own `words`.
  std::string changed(const std::string& change) const {
    const std::string real = place().work(GetParam()) + "/runsc.real";
    if (::access(real.c_str(), F_OK) != 0) {
      file("runsc.real", read_text("/usr/bin/runsc").value_or(""));
      EXPECT_EQ(::chmod(real.c_str(), 0755), 0);
    }
    const std::string path =
        file("runsc.changed",
             "#!/usr/bin/python3\n"
             "import json, os, sys\n"
             "words = sys.argv[1:]\n"
             "real = '" +
                 real +
                 "'\n"
                 "if '--bundle' in words:\n"
                 "    path = words[words.index('--bundle') + 1] + '/config.json'\n"
                 "    with open(path) as given:\n"
                 "        config = json.load(given)\n"
                 "    mounts = {one['destination']: one for one in config['mounts']}\n"
                 "    " +
                 change +
                 "\n"
                 "    os.chmod(path, 0o644)\n"
                 "    with open(path, 'w') as file:\n"
                 "        json.dump(config, file)\n"
                 "os.execv(real, ['runsc'] + words)\n");
    EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    return path;
  }
};
CARREL_AS_BOTH(GvisorWalls);

TEST_P(GvisorWalls, ThroughTheWrapperOfTheseTestsItWorks) {
  const Run run = with(changed("pass"), {"run", "--", "echo", "in"});
  EXPECT_EQ(run.out, "in\n") << run.err;
}

// B-1, R14: what was asked for and is not there is no sandbox, whoever was to build it
TEST_P(GvisorWalls, AWallThatIsLeftOutIsNoSandbox) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"config['root']['readonly'] = False", "not protected"},
      {"mounts['/usr']['options'] = ['rbind', 'nosuid', 'nodev']", "usr"},
      {"mounts['/data']['options'] = ['rbind', 'rw']", "data"},
      {"config['mounts'].remove(mounts['/sys'])", "sys"},
      {"config['mounts'].remove(mounts['/proc/meminfo'])", "proc/meminfo"},
      {"mounts['/tmp']['options'] = ['rw', 'mode=1777', 'size=8g']", "tmp"},
      {"config['hostname'] = 'other'", "hostname"},
      {"[config['process']['capabilities'][s].append('CAP_SYS_ADMIN') for s in ('bounding', "
       "'effective', 'permitted')]",
       "privileges"},
      {"config['mounts'].append({'destination': '/opt', 'type': 'none', 'source': "
       "'/etc/alternatives', 'options': ['bind', 'ro', 'nosuid', 'nodev']})",
       "opt"},
  };
  for (const auto& row : kTable) {
    const Run run =
        with(changed(row.change), {"run", "--mount", data + ":/data", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << row.change;
    EXPECT_EQ(run.out, "") << row.change;
    EXPECT_NE(run.err.find(row.said), std::string::npos) << row.change << ": " << run.err;
  }
}

// CRITICAL: in another network than the captive one nobody would decide on what leaves.
TEST_P(GvisorWalls, AnotherNetworkThanTheOneThatIsServedIsNoSandbox) {
  for (const char* change :
       {"words = [word.replace('--network=host', '--network=none') for word in words]",
        "config['linux']['namespaces'].append({'type': 'network'})"}) {
    const Run run =
        with(changed(change), {"run", "--network", "allow=example.test", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << change;
    EXPECT_EQ(run.out, "") << change;
    EXPECT_NE(run.err.find("the network is not the sandbox's"), std::string::npos)
        << change << ": " << run.err;
  }
}

// CRITICAL: --isolation gvisor is not the host's kernel under another name.
TEST_P(GvisorWalls, AnotherRuntimeUnderItsNameIsNoSandbox) {
  const Run run = with(changed("real = '/usr/sbin/runc'\n"
                               "    words = [w for w in words if not w.startswith('--') or w in "
                               "('--root', '--bundle', '--detach', '--pid-file')]\n"
                               "    ids = [{'containerID': 0, 'hostID': 0, 'size': 1}]\n"
                               "    config['linux']['namespaces'].append({'type': 'user'})\n"
                               "    config['linux'].update(uidMappings=ids, gidMappings=ids)"),
                       {"run", "--", "echo", "came in"});
  EXPECT_EQ(run.status, 125);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("the kernel is not gVisor's"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace carrel::test
