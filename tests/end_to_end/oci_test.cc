// Walls that an OCI runtime builds: what is particular to them. Everything else is in the tests
// that are run with every backend.
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/in_namespaces.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Oci : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped() && ::geteuid() != 0) {
      GTEST_SKIP() << "only root can put another program in the place of a runtime";
    }
  }

  // A sandbox of this backend on a host whose runc is this program. It is only seen in a mount
  // namespace of the run's own.
  Run with(const std::string& program, std::vector<std::string> words) const {
    words.insert(words.begin() + 1, {"--backend", "oci", "--runtime", "runc"});
    return Process(with_program_at(launch(std::move(words)), "/usr/sbin/runc", program))
        .wait(std::chrono::seconds(60));
  }

  std::string program(const std::string& name, const std::string& text) const {
    const std::string path = file(name, text);
    EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    return path;
  }

  // A runtime that builds something else than it is told. `change` is Python that works on the
  // bundle's `config`.
  std::string changed(const std::string& change) const {
    const std::string real = place().work(GetParam()) + "/runc.real";
    if (::access(real.c_str(), F_OK) != 0) {
      file("runc.real", read_text("/usr/sbin/runc").value_or(""));
      EXPECT_EQ(::chmod(real.c_str(), 0755), 0);
    }
    return program("runc.changed",
                   "#!/usr/bin/python3\n"
                   "import json, os, sys\n"
                   "words = sys.argv[1:]\n"
                   "if '--bundle' in words:\n"
                   "    path = words[words.index('--bundle') + 1] + '/config.json'\n"
                   "    with open(path) as given:\n"
                   "        config = json.load(given)\n"
                   "    mounts = {one['destination']: one for one in config['mounts']}\n"
                   "    linux = config['linux']\n"
                   "    def without(kind):\n"
                   "        linux['namespaces'] = [one for one in linux['namespaces']\n"
                   "                               if one['type'] != kind]\n"
                   "    " +
                       change +
                       "\n"
                       "    os.chmod(path, 0o644)\n"
                       "    with open(path, 'w') as file:\n"
                       "        json.dump(config, file)\n"
                       "os.execv('" +
                       real + "', ['runc'] + words)\n");
  }
};
CARREL_AS_BOTH(Oci);

TEST_P(Oci, ThroughTheWrapperOfTheseTestsItWorks) {
  const Run run = with(changed("pass"), {"run", "--", "echo", "in"});
  EXPECT_EQ(run.out, "in\n") << run.err;
  EXPECT_EQ(run.status, 0);
}

// B-1, R14: what was asked for and is not there is no sandbox, whoever was to build it
TEST_P(Oci, AWallThatIsLeftOutIsNoSandbox) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"config['root']['readonly'] = False", "not protected"},
      {"mounts['/usr']['options'] = ['rbind', 'nosuid', 'nodev']", "usr"},
      {"linux['maskedPaths'].remove('/proc/kallsyms')", "proc/kallsyms"},
      {"linux['readonlyPaths'].remove('/proc/sys')", "proc/sys"},
      {"config['mounts'].remove(mounts['/proc/meminfo'])", "proc/meminfo"},
      {"config['hostname'] = 'other'", "hostname"},
      {"config['process']['noNewPrivileges'] = False", "privileges"},
      {"[config['process']['capabilities'][s].append('CAP_SYS_ADMIN') for s in ('bounding', "
       "'effective', 'permitted')]",
       "privileges"},
      {"mounts['/data']['source'] = '/etc/alternatives'", "data"},
      {"config['mounts'].append({'destination': '/opt', 'type': 'none', 'source': "
       "'/etc/alternatives', 'options': ['bind', 'ro', 'nosuid', 'nodev']})",
       "opt"},
  };
  for (const auto& row : kTable) {
    const Run run =
        with(changed(row.change), {"run", "--mount", data + ":/data", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << row.change;
    EXPECT_TRUE(says_one_line(run, "rely on these walls")) << row.change;
    EXPECT_NE(run.err.find(row.said), std::string::npos) << row.change << ": " << run.err;
  }
  // Without a namespace a runtime itself may give up first; in no case is there a sandbox.
  for (const std::string kind : {"network", "pid", "ipc", "uts", "mount"}) {
    const Run run = with(changed("without('" + kind + "')"), {"run", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << kind << run.out;
    EXPECT_EQ(run.out, "") << kind;
  }
}

TEST_P(Oci, ARuntimeThatHangsIsEndedWithWhatItStarted) {
  const std::string hanging = program(
      "hanging",
      "#!/bin/sh\ncase $1 in --version) echo 'runc version 1.5.0';; *) exec sleep 4141;; esac\n");
  const Run run = with(hanging, {"run", "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "did not answer")) << run.err;
  EXPECT_LT(run.duration, patient(seconds(25)));
  EXPECT_TRUE(eventually(seconds(2), [] {
    for (const HostProcess& process : descendants()) {
      if (process.name == "sleep") {
        return false;
      }
    }
    return true;
  }));
}

// Hosts with control groups of both versions are no obstacle.
TEST_P(Oci, CrunBuildsTheSameRoom) {
  ASSERT_EQ(::access("/usr/bin/crun", X_OK), 0) << "install the package 'crun'";
  const Box box(GetParam(), {"--backend", "oci", "--runtime", "crun"});
  EXPECT_EQ(box.sh("cd /tmp; echo $((6*7))").out, "42\n");
  EXPECT_EQ(box.sh("pwd; ! touch /usr/x 2>/dev/null && id -u").out, "/tmp\n1000\n");
}

// L03
TEST_P(Oci, AVersionWithKnownEscapesIsNamed) {
  const Box box(GetParam(), {"--backend", "oci", "--runtime", "runc"});
  std::string flaws;
  const json info = box.info();
  for (const json& row : info["enforcement"]) {
    flaws = row["name"] == "known flaws" ? row["note"].get<std::string>() : flaws;
  }
  EXPECT_NE(flaws.find("CVE-2024-21626"), std::string::npos) << flaws;
  EXPECT_NE(flaws.find("distributions patch without changing it"), std::string::npos) << flaws;
}

}  // namespace
}  // namespace carrel::test
