// Walls of Docker's engine: what is particular to them. Everything else is in the tests that are
// run with every backend.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/with_engine.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Docker : public WithEngine<CarrelTest> {};
CARREL_AS_BOTH(Docker);

// An engine removes a container a moment after its end.
TEST_P(Docker, OneThatWasStoppedIsStartedAgainThoughItsContainerIsStillThere) {
  const Box one = box({"--name", "one", "--workspace", "w"});
  const std::string name = "carrel-" + one.id();
  const json former = json::parse(engine_->ask("GET", "/containers/" + name + "/json"))["Config"];
  ASSERT_TRUE(former["Labels"].contains("carrel.sandbox")) << former;
  ASSERT_EQ(carrel({"stop", "one"}).status, 0);
  ASSERT_TRUE(nothing_left());
  const std::string busybox = read_text("/bin/busybox").value_or("");
  EXPECT_NE(engine_->import_files("slow:v1", {{"busybox", busybox}}).find("sha256"),
            std::string::npos);
  const json slow = {{"Image", "slow:v1"},
                     {"Labels", former["Labels"]},
                     {"Cmd", {"/busybox", "sleep", "2"}},
                     {"HostConfig", {{"AutoRemove", true}, {"NetworkMode", "none"}}}};
  EXPECT_NE(engine_->ask("POST", "/containers/create?name=" + name, slow.dump()).find("Id"),
            std::string::npos);
  EXPECT_EQ(engine_->ask("POST", "/containers/" + name + "/start"), "");
  const Run again = carrel({"start", "one"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(one.sh("echo here").out, "here\n");
  EXPECT_EQ(one.remove().status, 0);
  EXPECT_TRUE(nothing_left());
  (void)engine_->ask("DELETE", "/images/slow:v1");
}

TEST_P(Docker, ACommandRunsInAContainerThatGoesWithIt) {
  const Run run = docker({"run", "--", "bash", "-c", "echo in; id -un; cat /proc/1/comm; exit 7"});
  EXPECT_EQ(run.status, 7) << run.err;
  EXPECT_EQ(run.out.substr(0, 9), "in\nagent\n") << run.out << run.err;
  EXPECT_TRUE(nothing_left());
}

TEST_P(Docker, ALongLivedOneIsUsedAsAnyOther) {
  const std::string data = file("data.txt", "from outside\n");
  const Box box = this->box();
  EXPECT_EQ(box.sh("x=1; cd /tmp").status, 0);
  EXPECT_EQ(box.sh("echo $x $PWD").out, "1 /tmp\n");
  EXPECT_EQ(box.exec({"sh", "-c", "exit 3"}).status, 3);
  EXPECT_EQ(carrel({"cp", data, box.id() + ":/workspace/here"}).status, 0);
  EXPECT_EQ(box.sh("cat /workspace/here").out, "from outside\n");
  EXPECT_NE(engine_->containers(), "");
  const json info = box.info();
  EXPECT_EQ(info["backend"], "docker") << info.dump();
  EXPECT_NE(info.dump().find("docker 20"), std::string::npos) << info.dump();
  EXPECT_EQ(carrel({"pause", box.id()}).status, 0);
  EXPECT_EQ(carrel({"resume", box.id()}).status, 0);
  EXPECT_EQ(box.sh("echo $x").out, "1\n");
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_TRUE(nothing_left());
}

TEST_P(Docker, LimitsHold) {
  const Run memory =
      docker({"run", "--memory", "64m", "--", "python3", "-c", "x = b'x' * 400000000"});
  EXPECT_NE(memory.status, 0);
  EXPECT_NE(memory.err.find("out of memory"), std::string::npos) << memory.err;
  const Run pids = docker(
      {"run", "--pids", "20", "--", "bash", "-c", "for i in $(seq 60); do sleep 5 & done; wait"});
  EXPECT_NE(pids.err.find("fork"), std::string::npos) << pids.err;
  EXPECT_EQ(docker({"run", "--require", "memory,cpu,pids", "--", "true"}).status, 0);
}

TEST_P(Docker, ThereIsNoNetworkButTheOneThatWasAllowed) {
  const Run none = docker({"run", "--", "bash", "-c",
                           "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; "
                           "exec 3<>/dev/tcp/127.0.0.1/53 || echo closed"});
  EXPECT_NE(none.out.find("lo\nclosed"), std::string::npos) << none.out << none.err;
  const Run some =
      docker({"run", "--network", "allow=example.com", "--", "cat", "/etc/resolv.conf"});
  EXPECT_EQ(some.status, 0) << some.err;
}

TEST_P(Docker, WorkspacesAndMountsAreThoseOfTheHost) {
  EXPECT_EQ(docker({"run", "--workspace", "w", "--", "sh", "-c", "echo kept > a"}).status, 0);
  EXPECT_EQ(docker({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
  EXPECT_EQ(carrel({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const Run written =
      docker({"run", "--mount", data + ":/data:rw", "--", "sh", "-c", "echo x > /data/file"});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_TRUE(std::filesystem::exists(data + "/file"));
  EXPECT_NE(docker({"run", "--mount", data + ":/data", "--", "touch", "/data/no"}).status, 0);
  const Run root =
      docker({"run", "--writable-root", "--", "sh", "-c", "echo x > /usr/x && cat /usr/x"});
  EXPECT_EQ(root.out, "x\n") << root.err;
}

// B-1, R14: what the engine was told is what it has, or there is no sandbox
TEST_P(Docker, AnEngineThatWeakensAWallIsNoSandbox) {
  EXPECT_EQ(changed("pass", {"run", "--", "echo", "in"}).out, "in\n");
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"host['CapDrop'] = []", "HostConfig.CapDrop"},
      {"host['CapAdd'] = ['SYS_ADMIN']", "HostConfig.CapAdd"},
      {"host['SecurityOpt'].remove('no-new-privileges')", "HostConfig.SecurityOpt"},
      {"host['ReadonlyRootfs'] = False", "HostConfig.ReadonlyRootfs"},
      {"host['IpcMode'] = 'shareable'", "HostConfig.IpcMode"},
      {"host['CgroupnsMode'] = 'host'", "HostConfig.CgroupnsMode"},
      {"host['PidsLimit'] = 0", "HostConfig.PidsLimit"},
      {"host['Memory'] = 0; host['MemorySwap'] = 0", "HostConfig.Memory"},
      {"host['NanoCpus'] = 0", "HostConfig.NanoCpus"},
      {"host['NetworkMode'] = 'host'", "HostConfig.NetworkMode"},
      {"host['AutoRemove'] = False", "HostConfig.AutoRemove"},
      {"host['Binds'] = ['/:/host']", "HostConfig.Binds"},
      {"host['Mounts'][2]['ReadOnly'] = False", "HostConfig.Mounts"},
      {"body['User'] = '4242:4242'", "Config.User"},
      {"body['Labels'] = {}", "Config.Labels"},
  };
  for (const auto& row : kTable) {
    const Run run = changed("if body:\n    " + row.change, {"run", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, row.said)) << row.change << run.err;
  }
}

// An engine that builds something else and says that it did not.
TEST_P(Docker, AnEngineThatLiesIsFoundOutFromInside) {
  // It switches labels off with these by itself.
  const std::string usual = "; host['SecurityOpt'] = ['no-new-privileges', 'seccomp=unconfined']";
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"host['CapDrop'] = [] if answer is None else ['ALL']", "capabilities"},
      {"host['SecurityOpt'] = ['seccomp=unconfined'] if answer is None else "
       "['no-new-privileges', 'seccomp=unconfined']",
       "new privileges"},
      {"host['NetworkMode'] = 'host' if answer is None else 'none'", "network"},
      {"host['IpcMode'] = 'host' if answer is None else 'private'" + usual, "'ipc'"},
      {"host['UTSMode'] = 'host' if answer is None else ''", "'uts'"},
      {"host['PidMode'] = 'host' if answer is None else ''" + usual, "PID namespace"},
      {"host['CgroupnsMode'] = 'host' if answer is None else 'private'", "'cgroup'"},
  };
  for (const auto& row : kTable) {
    const Run run =
        changed("if body or (answer and host and 'State' in answer):\n    " + row.change +
                    "\n    if body: body.update(Hostname='', NetworkDisabled=False)",
                {"run", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, "rely on th")) << row.change;
    EXPECT_NE(run.err.find(row.said), std::string::npos) << row.change << run.err;
  }
}

TEST_P(Docker, ARuntimeThatTheEngineDoesNotHaveIsRefusedWithThoseThatItHas) {
  const Run unknown = docker({"run", "--runtime", "nothing", "--", "true"});
  EXPECT_EQ(unknown.status, 125);
  EXPECT_TRUE(says_one_line(unknown, "no runtime 'nothing'"));
  EXPECT_NE(unknown.err.find("runc"), std::string::npos) << unknown.err;
  EXPECT_EQ(docker({"run", "--runtime", "runc", "--", "true"}).status, 0);
  const Run kata = docker({"run", "--runtime", "kata-other", "--", "true"});
  EXPECT_EQ(kata.status, 125);
  EXPECT_TRUE(says_one_line(kata, "no runtime 'kata-other'")) << kata.err;
}

TEST_P(Docker, ErrorsOfTheEngineAreToldAtOnceAndLeaveNothing) {
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"if 'create?name' in path and body: refuse(500, 'write /x: no space left on device')",
       "no space left"},
      {"if path.endswith('/start') and answer is None: refuse(500, 'OCI runtime create failed')",
       "OCI runtime create failed"},
      {"if path.endswith('/start') and answer is None: drop()", "does not answer"},
      {"if path.endswith('/info') and answer is None: hang()", "does nothing"},
      {"if 'create?name' in path and body: hang()", "does nothing"},
      {"if path.endswith('/start') and answer is None: hang()", "does nothing"},
      {"if path.endswith('/json') and 'containers/' in path and answer is None: hang()",
       "does nothing"},
      {"if path.endswith('/info') and answer: answer.clear()", "Linux containers"},
      {"if path.endswith('/json') and 'containers/' in path: refuse(404, 'No such container')",
       "not there any more"},
  };
  for (const auto& row : kTable) {
    // Two seconds, and what comes before. Another engine that works on this machine is taken for
    // this one: then it takes longer.
    const std::chrono::milliseconds limit = patient(seconds(3));
    std::chrono::milliseconds best = seconds(60);
    for (int tries = 0; tries < 4 && best >= limit; ++tries) {
      const Run run = changed(row.change, {"run", "--", "echo", "came in"});
      EXPECT_EQ(run.status, 125) << row.change << run.out;
      EXPECT_TRUE(says_one_line(run, row.said) ||
                  (row.said == "does nothing" && says_one_line(run, "in time")))
          << row.change << run.err;
      best = std::min(best, run.duration);
    }
    EXPECT_LT(best, limit) << row.change;
  }
  // What could not be asked of an engine that was gone is done when it is there, and when it has
  // had its time to finish what it was asked for.
  EXPECT_TRUE(eventually(seconds(20), [&] {
    EXPECT_EQ(changed("pass", {"run", "--", "true"}).status, 0);
    return std::filesystem::is_empty(place().home(GetParam()) + "/run/docker");
  }));
  for (const std::string host : {"unix:///nonexistent/socket", "tcp://127.0.0.1:2375"}) {
    const Run run = docker({"run", "--", "true"}, {.environment = {"DOCKER_HOST=" + host}});
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(
        run, host.starts_with("tcp") ? "only an engine on this host" : "does not answer"));
  }
}

// A slow disk is no reason to give up: whoever waits for it, or computes, is at work.
TEST_P(Docker, AnEngineThatWorksIsWaitedFor) {
  const Run run = changed(
      "if 'create?name' in path and body:\n"
      "    import os, subprocess, tempfile\n"
      "    with tempfile.TemporaryDirectory() as place:\n"
      "        os.symlink('/usr/bin/python3', place + '/dockerd')\n"
      "        subprocess.run([place + '/dockerd', '-c', 'import time\\ne = time.monotonic() + "
      "4\\n'"
      "                        'while time.monotonic() < e: pass'])\n",
      {"run", "--", "echo", "in"});
  EXPECT_EQ(run.out, "in\n") << run.err;
  EXPECT_GT(run.duration, seconds(4));
}

TEST_P(Docker, ARuntimeThatCrashesIsTold) {
  const Run run = docker({"run", "--runtime", "crashes", "--", "echo", "came in"});
  EXPECT_EQ(run.status, 125) << run.out;
  EXPECT_TRUE(says_one_line(run, "could not start the container")) << run.err;
  EXPECT_LT(run.duration, patient(seconds(3)));
}

TEST_P(Docker, AnImageThatIsGoneIsMadeAgain) {
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  const std::string name = "localhost/carrel-room:" + place().label(GetParam());
  EXPECT_TRUE(nothing_left());
  EXPECT_NE(engine_->ask("DELETE", "/images/" + name).find("Deleted"), std::string::npos);
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
}

TEST_P(Docker, AContainerThatSomebodyRemovesIsAnEndedSandbox) {
  const Box box = this->box();
  EXPECT_EQ(box.sh("true").status, 0);
  std::string id = engine_->containers();
  id.pop_back();
  (void)engine_->ask("DELETE", "/containers/" + id + "?force=1");
  EXPECT_TRUE(eventually(seconds(2), [&] { return box.sh("true").status == 125; }));
}

TEST_P(Docker, ACommandWhoseContainerIsRemovedEndsAtOnce) {
  const Box box = this->box();
  std::string id = engine_->containers();
  id.pop_back();
  Process command(launch({"exec", box.id(), "--", "sh", "-c", "echo started; sleep 60"}));
  ASSERT_TRUE(command.wait_for_output("started", seconds(10)));
  (void)engine_->ask("DELETE", "/containers/" + id + "?force=1");
  const Run run = command.wait(seconds(3));
  EXPECT_EQ(run.status, 125) << run.out << run.err;
}

TEST_P(Docker, NothingIsLeftWhenItsMakerIsKilledInTheMiddle) {
  for (const int wait_ms : {0, 30, 60, 100, 150, 200, 300, 450}) {
    Process run(launch({"run", "--backend", "docker", "--", "sleep", "60"}));
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    run.send(SIGKILL);
    (void)run.wait(seconds(5));
  }
  // The next one sweeps.
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  EXPECT_TRUE(eventually(seconds(40), [&] {
    (void)carrel({"run", "--", "true"});
    ::usleep(500'000);
    return std::filesystem::is_empty(place().home(GetParam()) + "/run/docker");
  }));
  EXPECT_TRUE(nothing_left()) << engine_->containers();
}

// An engine that is killed does not always remove what had ended meanwhile.
TEST_P(Docker, ContainersThatAnEngineForgotGoWithTheNextSandbox) {
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  EXPECT_TRUE(nothing_left());
  const auto make = [&](const std::string& installation) {
    const json asked = {
        {"Image", "localhost/carrel-room:" + place().label(GetParam())},
        {"Cmd", {"/busybox", "true"}},
        {"Labels", {{"carrel.installation", installation}, {"carrel.sandbox", "forgotten"}}},
        {"HostConfig", {{"NetworkMode", "none"}, {"Binds", {"/bin/busybox:/busybox:ro"}}}}};
    const json made = json::parse(engine_->ask("POST", "/containers/create", asked.dump()));
    std::string id = made.value("Id", "");
    (void)engine_->ask("POST", "/containers/" + id + "/start");
    (void)engine_->ask("POST", "/containers/" + id + "/wait");
    return id;
  };
  const std::string own = make(place().label(GetParam()));
  const std::string of_others = make("somebody-else");
  EXPECT_NE(engine_->containers().find(own), std::string::npos);
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  EXPECT_EQ(engine_->containers().find(own), std::string::npos);
  EXPECT_NE(engine_->containers().find(of_others), std::string::npos);
  (void)engine_->ask("DELETE", "/containers/" + of_others + "?force=1");
}

TEST_P(Docker, SandboxesOfOthersAreLeftAlone) {
  const Box box = this->box();
  const As other = as_root() ? As::kUser : As::kRoot;
  EXPECT_EQ(test::carrel(other, {"run", "--backend", "docker", "--", "true"}).status, 0);
  EXPECT_EQ(test::carrel(other, {"ls"}).status, 0);
  EXPECT_EQ(box.sh("echo here").out, "here\n");
}

TEST_P(Docker, ItOutlivesItsKeeperAndEndsWithItsEngine) {
  const Box box = this->box();
  EXPECT_EQ(box.sh("x=1").status, 0);
  for (const HostProcess& process : descendants()) {
    if (read_text("/proc/" + std::to_string(process.pid) + "/cmdline")
            .value_or("")
            .find(std::string("\0keeper\0", 8)) != std::string::npos) {
      ::kill(process.pid, SIGKILL);
    }
  }
  EXPECT_EQ(box.sh("echo $x").out, "1\n");
  ASSERT_GT(engine_->pid(), 1);
  ::kill(engine_->pid(), SIGKILL);
  EXPECT_EQ(box.sh("echo $x").out, "1\n") << "an engine that is gone changes nothing inside";
  const Run run = docker({"run", "--", "true"});
  EXPECT_TRUE(says_one_line(run, "does not answer"));
  EXPECT_LT(run.duration, patient(seconds(3)));
  engine_->start_again();  // which ends what it finds
  EXPECT_TRUE(eventually(seconds(5), [&] { return box.sh("true").status == 125; }));
  // It removes what it ended, or forgets it: then the next sandbox does.
  EXPECT_TRUE(eventually(seconds(20), [&] {
    EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
    return nothing_left();
  }));
}

}  // namespace
}  // namespace carrel::test
