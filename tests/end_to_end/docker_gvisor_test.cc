// gVisor through Docker's engine, and images that an engine has: what is particular to them.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/with_engine.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class DockerGvisor : public WithEngine<CarrelTest> {
 protected:
  void SetUp() override {
    WithEngine::SetUp();
    ASSERT_EQ(::access("/usr/bin/runsc", X_OK), 0) << "install the package 'runsc'";
  }
  [[nodiscard]] std::vector<std::string> walls() const override {
    return {"--backend", "docker", "--runtime", "runsc"};
  }
  Run run(std::vector<std::string> words) const {
    words.insert(words.begin(), "run");
    return docker(std::move(words), {.timeout_seconds = 60});
  }
};
CARREL_AS_BOTH(DockerGvisor);

TEST_P(DockerGvisor, TheKernelIsItsOwnAndTheContainerGoesWithTheCommand) {
  const Run told = run({"--", "bash", "-c", "cat /proc/version; id -un; pwd; exit 7"});
  EXPECT_EQ(told.status, 7) << told.err;
  EXPECT_TRUE(told.out.starts_with("Linux version 4.4.0 #1 SMP Sun Jan 10")) << told.out;
  EXPECT_TRUE(told.out.ends_with("\nagent\n/workspace\n")) << told.out;
  EXPECT_TRUE(nothing_left());
}

TEST_P(DockerGvisor, AnImageOfTheStoreIsItsRoot) {
  const std::string root = place().work(GetParam()) + "/root";
  std::filesystem::create_directories(root + "/bin");
  std::filesystem::create_directories(root + "/etc");
  std::filesystem::copy_file("/bin/busybox", root + "/bin/busybox");
  write_text(root + "/etc/marker", "of the image\n", 0644);
  ASSERT_EQ(carrel({"image", "import", root, "--name", "small"}).status, 0);
  const Run told = run({"--image", "small", "--", "/bin/busybox", "cat", "/etc/marker"});
  EXPECT_EQ(told.out, "of the image\n") << told.err;
}

TEST_P(DockerGvisor, ALongLivedOneIsUsedAsAnyOther) {
  const std::string data = file("data.txt", "from outside\n");
  const Box box = this->box();
  EXPECT_EQ(box.sh("x=1; cd /tmp").status, 0);
  EXPECT_EQ(box.sh("echo $x $PWD").out, "1 /tmp\n");
  EXPECT_EQ(box.exec({"sh", "-c", "exit 3"}).status, 3);
  EXPECT_EQ(carrel({"cp", data, box.id() + ":/workspace/here"}).status, 0);
  EXPECT_EQ(box.sh("cat /workspace/here").out, "from outside\n");
  EXPECT_EQ(carrel({"pause", box.id()}).status, 0);
  EXPECT_EQ(carrel({"resume", box.id()}).status, 0);
  EXPECT_EQ(box.sh("echo $x").out, "1\n");
  EXPECT_NE(box.info().dump().find("with runsc"), std::string::npos);
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_TRUE(nothing_left());
}

TEST_P(DockerGvisor, TheRootIsReadOnlyAndThereIsNoNetwork) {
  const Run told =
      run({"--", "bash", "-c",
           "touch /etc/x /usr/x /carrel/x /dev/x; touch /workspace/a /tmp/b && echo ok; "
           "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /etc/hosts"});
  EXPECT_NE(told.out.find("ok\nlo\n127.0.0.1 localhost"), std::string::npos)
      << told.out << told.err;
  for (const char* path : {"/etc/x", "/usr/x", "/carrel/x", "/dev/x"}) {
    EXPECT_NE(told.err.find(path), std::string::npos) << told.err;
  }
  const Run network = run({"--network", "allow=example.com", "--", "true"});
  EXPECT_EQ(network.status, 125);
  EXPECT_TRUE(says_one_line(network, "no network"));
}

// One of root's is a disk that is mounted nowhere, where no engine finds it.
TEST_P(DockerGvisor, AWorkspaceIsThatOfTheHostWhereItHasAPlaceThere) {
  if (as_root()) {
    const Run none = run({"--workspace", "w", "--", "true"});
    EXPECT_EQ(none.status, 125);
    EXPECT_TRUE(says_one_line(none, "only what has a place in the host's tree")) << none.err;
    return;
  }
  EXPECT_EQ(run({"--workspace", "w", "--", "sh", "-c", "echo kept > a"}).status, 0);
  EXPECT_EQ(run({"--workspace", "w", "--", "cat", "a"}).out, "kept\n");
  EXPECT_EQ(carrel({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
}

// Nobody but root can see what an engine mounts, so that nobody else may name it.
TEST_P(DockerGvisor, AFolderOfTheHostIsGivenByRootOnly) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const Run given = run({"--mount", data + ":/data:rw", "--", "sh", "-c", "echo x > /data/file"});
  EXPECT_EQ(given.status, as_root() ? 0 : 125) << given.err;
  EXPECT_EQ(std::filesystem::exists(data + "/file"), as_root());
}

TEST_P(DockerGvisor, MemoryIsLimited) {
  const Run memory = run({"--memory", "64m", "--", "python3", "-c", "x = b'x' * 400000000"});
  EXPECT_NE(memory.status, 0);
  EXPECT_NE(memory.err.find("out of memory"), std::string::npos) << memory.err;
}

TEST_P(DockerGvisor, ARuntimeThatLetsNobodyCallIsToldHowToBeSet) {
  const Run run = carrel({"run", "--backend", "docker", "--runtime", "runsc-closed", "--", "true"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "--host-uds=open")) << run.err;
  EXPECT_TRUE(nothing_left());
}

// B-1, R14: what the engine was told is what it has, or there is no sandbox.
TEST_P(DockerGvisor, AnEngineThatWeakensAWallIsNoSandbox) {
  EXPECT_EQ(changed("pass").out, "came in\n");
  // Of what it builds it tells what it was asked for.
  const std::string lies =
      "if body or (answer and host and 'State' in answer):\n    lie = body is None\n    ";
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"if body: host['CapAdd'] = ['SYS_ADMIN']", "HostConfig.CapAdd"},
      {"if body: host['PidsLimit'] = 0", "HostConfig.PidsLimit"},
      {"if body: host['Tmpfs']['/more'] = 'rw'", "HostConfig.Tmpfs"},
      {"if body: host['Mounts'][3]['ReadOnly'] = False", "HostConfig.Mounts"},
      {lies +
           "import builtins\n"
           "    if not lie:\n"
           "        builtins.every = host['Mounts']\n"
           "        host['Mounts'] = [m for m in every if '/proc/' not in m['Target']]\n"
           "        host['Runtime'] = 'runc'\n"
           "    else:\n"
           "        host['Mounts'], host['Runtime'] = every, 'runsc'\n"
           "        answer['Mounts'] += [{'Type': 'bind', 'Source': m['Source'], 'RW': False,\n"
           "            'Destination': m['Target']} for m in every if '/proc/' in m['Target']]\n",
       "the kernel is not gVisor's"},
      {lies + "host['ReadonlyRootfs'] = lie", "not protected"},
      {lies + "host['Tmpfs'].pop('/more', None) if lie else host['Tmpfs'].update({'/more': 'rw'})",
       "mounted at more"},
      {lies + "host['Binds'] = [] if lie else ['/srv:/srv']\n"
              "    if lie: answer['Mounts'] = [m for m in answer['Mounts'] if m['Destination'] != "
              "'/srv']",
       "mounted at srv"},
  };
  for (const auto& row : kTable) {
    const Run run = changed(row.change);
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, row.said)) << row.change << run.err;
  }
}

TEST_P(DockerGvisor, ItEndsWithWhoStandsForItAndWithItsContainer) {
  const Box box = this->box();
  EXPECT_EQ(box.sh("true").status, 0);
  // What stands for it is below another, and ends it all.
  pid_t first = 0;
  const std::vector<HostProcess> all = processes_of("porch");
  for (const HostProcess& below : all) {
    for (const HostProcess& above : all) {
      first = below.parent == above.pid ? below.pid : first;
    }
  }
  ASSERT_GT(first, 1);
  ::kill(first, SIGKILL);
  EXPECT_TRUE(nothing_left());
  EXPECT_EQ(box.sh("true").status, 125);
  const Box other = this->box();
  std::string id = engine_->containers();
  id.pop_back();
  (void)engine_->ask("DELETE", "/containers/" + id + "?force=1");
  EXPECT_TRUE(eventually(seconds(2), [&] { return other.sh("true").status == 125; }));
}

TEST_P(DockerGvisor, AnImageOfTheEngineIsTakenOverByItsName) {
  const std::string name = "carrel-test-image:v1";
  EXPECT_NE(engine_->import_files(name, {{"etc/os-release", "ID=tested\n"}}).find("sha256"),
            std::string::npos);
  const Run taken = carrel({"image", "import", "docker:" + name});
  EXPECT_EQ(taken.status, 0) << taken.err;
  EXPECT_NE(carrel({"image", "ls"}).out.find("carrel-test-image"), std::string::npos);
  const Run none = carrel({"image", "import", "docker:nothing-like-it:v1"});
  EXPECT_EQ(none.status, 125);
  EXPECT_TRUE(says_one_line(none, "has no image 'nothing-like-it:v1'")) << none.err;
  // It cannot reach a registry: what it says is passed on.
  const Run pulled = carrel({"image", "pull", "docker:localhost:1/nothing:v1"});
  EXPECT_EQ(pulled.status, 125);
  EXPECT_TRUE(says_one_line(pulled, "nothing")) << pulled.err;
  (void)engine_->ask("DELETE", "/images/" + name);
}

}  // namespace
}  // namespace carrel::test
