// Kata through Docker's engine, as far as it can be shown without a machine of Kata's: a real
// engine has a runtime that is only called so, and everything but the machine is real.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/networked.h"
#include "support/ports.h"
#include "support/with_engine.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class DockerKata : public WithEngine<WithServers<NetworkedTest>> {
 protected:
  [[nodiscard]] std::vector<std::string> walls() const override {
    return {"--backend", "docker", "--runtime", "kata"};
  }
  // What stands on the host for sandboxes of this test.
  static bool stands(const HostProcess& process) {
    return read_text("/proc/" + std::to_string(process.pid) + "/cmdline")
               .value_or("")
               .find(std::string("\0porch\0", 7)) != std::string::npos;
  }
  // Of these the one that carries what is said, the first process of namespaces of its own; 0:
  // none.
  static pid_t ferry() {
    for (const HostProcess& process : descendants()) {
      const std::string status =
          read_text("/proc/" + std::to_string(process.pid) + "/status").value_or("");
      if (stands(process) && status.find("\t1\n", status.find("NSpid:")) ==
                                 status.find('\n', status.find("NSpid:")) - 2) {
        return process.pid;
      }
    }
    return 0;
  }
  static std::size_t standing() {
    const std::vector<HostProcess> all = descendants();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), stands));
  }
  static bool nobody_stands() {
    return eventually(seconds(5), [] { return standing() == 0; });
  }

  Run run(std::vector<std::string> words, const Options& options = {}) const {
    words.insert(words.begin(), "run");
    return docker(std::move(words), options);
  }
};
CARREL_AS_BOTH(DockerKata);

TEST_P(DockerKata, ACommandRunsAndItsContainerGoesWithIt) {
  const Run hello = run({"--", "echo", "hi"});
  EXPECT_EQ(hello.status, 0) << hello.err;
  EXPECT_EQ(hello.out, "hi\n");
  const Run told = run({"--", "bash", "-c", "id -un; pwd; echo wrong >&2; exit 7"});
  EXPECT_EQ(told.status, 7) << told.err;
  EXPECT_EQ(told.out, "agent\n/workspace\n");
  EXPECT_NE(told.err.find("wrong\n"), std::string::npos) << told.err;
  EXPECT_EQ(run({"--", "bash", "-c", "kill -9 $$"}).status, 137);
  EXPECT_EQ(run({"--timeout", "1", "--", "sleep", "60"}).status, 124);
  EXPECT_EQ(run({"--", "/nothing/here"}).status, 127);
  EXPECT_TRUE(nothing_left());
  EXPECT_TRUE(nobody_stands());
}

TEST_P(DockerKata, InputAndOutputOfManyMegabytesComeThroughAsTheyAre) {
  EXPECT_EQ(run({"--", "cat"}, {.input = "some input\n"}).out, "some input\n");
  std::string large;
  while (large.size() < 3U << 20) {
    large += std::to_string(large.size() * 2654435761U) + "\n";
  }
  const Run echoed = run({"--", "cat"}, {.input = large});
  EXPECT_EQ(echoed.status, 0) << echoed.err;
  EXPECT_TRUE(echoed.out == large) << echoed.out.size();
  const std::string data = place().work(GetParam()) + "/large";
  ASSERT_EQ(std::system(("head -c 40000000 /dev/urandom > " + data).c_str()), 0);
  place().give(data, GetParam());
  const Box box = this->box();
  EXPECT_EQ(carrel({"cp", data, box.id() + ":/workspace/large"}).status, 0);
  EXPECT_EQ(carrel({"cp", box.id() + ":/workspace/large", data + ".back"}).status, 0);
  EXPECT_EQ(std::system(("cmp " + data + " " + data + ".back").c_str()), 0);
}

TEST_P(DockerKata, ALongLivedOneIsUsedAsAnyOther) {
  const Box box = this->box();
  EXPECT_EQ(box.sh("x=1; export Y=2; cd /tmp; sleep 300 & p=$!").status, 0);
  EXPECT_EQ(box.sh("echo $x $(printenv Y) $PWD; kill -0 $p && echo alive").out,
            "1 2 /tmp\nalive\n");
  EXPECT_EQ(box.exec({"sh", "-c", "exit 3"}).status, 3);
  EXPECT_EQ(carrel({"pause", box.id()}).status, 0);
  EXPECT_EQ(carrel({"resume", box.id()}).status, 0);
  EXPECT_EQ(box.sh("echo $x; exit 4").status, 4);
  EXPECT_EQ(box.sh("echo again").out, "again\n");
  EXPECT_NE(engine_->containers(), "");
  EXPECT_EQ(standing(), 2U);
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_TRUE(nothing_left());
  EXPECT_TRUE(nobody_stands());
}

TEST_P(DockerKata, WhatIsNotVerifiedIsSaid) {
  const Box box = this->box();
  const Run told = carrel({"info", "--enforcement", box.id()});
  EXPECT_NE(told.out.find("unverified: the runtime 'kata' of the engine made no virtual machine"),
            std::string::npos)
      << told.out;
  const std::string enforcement = box.info().dump();
  for (const char* part : {"with kata; unverified", "whether Kata keeps to it is unverified",
                           "this one is no virtual machine: its kernel is the host's"}) {
    EXPECT_NE(enforcement.find(part), std::string::npos) << part << enforcement;
  }
  const Run doctor = carrel({"doctor"});
  EXPECT_NE(doctor.out.find("backend docker kata"), std::string::npos) << doctor.out;
  EXPECT_NE(doctor.out.find("unverified: no machine of Kata's was at hand"), std::string::npos)
      << doctor.out;
}

// What is said on a kernel of another boot id, which is not one of a machine for all that.
TEST_P(DockerKata, AnotherKernelIsUnverifiedStill) {
  std::string boot = read_text("/proc/sys/kernel/random/boot_id").value_or("");
  boot.resize(36);
  const auto proxy = change_engine("if 'attach' in path: alter(b'" + boot +
                                   "', b'01234567-89ab-cdef-0123-456789abcdef')");
  const Run made = docker({"create"}, {.environment = {"DOCKER_HOST=unix://" + changed_socket()}});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string id = made.out.substr(0, made.out.find('\n'));
  const Run told = carrel({"info", "--enforcement", id});
  EXPECT_NE(told.out.find("a virtual machine by the word of the engine's runtime 'kata'"),
            std::string::npos)
      << told.out;
  EXPECT_EQ(told.out.find("the host's kernel is shared"), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("unverified: no machine of Kata's"), std::string::npos) << told.out;
  EXPECT_EQ(carrel({"sh", id, "echo in"}).out, "in\n");
  EXPECT_EQ(carrel({"rm", id}).status, 0);
  EXPECT_TRUE(nothing_left());
}

// It reads what comes out of the container.
TEST_P(DockerKata, WhoStandsForItHasNoRights) {
  const Box box = this->box();
  const pid_t pid = ferry();
  ASSERT_GT(pid, 1);
  const std::string place = "/proc/" + std::to_string(pid);
  const std::string status = read_text(place + "/status").value_or("");
  for (const char* line : {"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
                           "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"}) {
    EXPECT_NE(status.find(line), std::string::npos) << line << status;
  }
  const std::string user = std::to_string(Place::user_id());
  EXPECT_EQ(status.find("\nUid:\t0\t"), std::string::npos) << status;
  EXPECT_EQ(status.find("\nUid:\t" + user + "\t") == std::string::npos, as_root()) << status;
  EXPECT_TRUE(std::filesystem::is_empty(place + "/root"));
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"}) {
    const std::string name = std::string("/ns/") + kind;
    EXPECT_NE(std::filesystem::read_symlink(place + name),
              std::filesystem::read_symlink("/proc/self" + name));
  }
}

TEST_P(DockerKata, ItIsNeverTakenForItsStrength) {
  for (const char* strength : {"vm", "gvisor"}) {
    const Run asked = run({"--isolation", strength, "--", "echo", "came in"});
    EXPECT_EQ(asked.status, 125);
    EXPECT_TRUE(says_one_line(asked, "weaker than")) << asked.err;
  }
  EXPECT_EQ(run({"--isolation", "namespace", "--", "true"}).status, 0);
}

TEST_P(DockerKata, LimitsHoldAndAreNotPromised) {
  const Run memory = run({"--memory", "64m", "--", "python3", "-c", "x = b'x' * 400000000"});
  EXPECT_NE(memory.status, 0);
  EXPECT_NE(memory.err.find("out of memory"), std::string::npos) << memory.err;
  const Run files = run({"--memory", "64m", "--", "python3", "-c",
                         "import os, time\n"
                         "fd = os.memfd_create('x')\n"
                         "for i in range(110): os.write(fd, b'x' * (1 << 20))\n"
                         "time.sleep(5)"});
  EXPECT_NE(files.err.find("out of memory"), std::string::npos) << files.err;
  const Run pids =
      run({"--pids", "20", "--", "bash", "-c", "for i in $(seq 60); do sleep 5 & done; wait"});
  EXPECT_NE(pids.err.find("fork"), std::string::npos) << pids.err;
  EXPECT_EQ(run({"--cpus", "1", "--", "nproc"}).out, "1\n");
  EXPECT_EQ(run({"--require", "pids", "--", "true"}).status, 0);
  for (const char* limit : {"memory", "cpu"}) {
    const Run required = run({"--require", limit, "--", "echo", "came in"});
    EXPECT_EQ(required.status, 125) << required.out;
    EXPECT_TRUE(says_one_line(required, "unverified")) << required.err;
  }
}

// What an engine shows of the host in a machine nobody can compare.
TEST_P(DockerKata, WorkspacesOfUsersPersistAndNothingElseIsGiven) {
  const Run written = run({"--workspace", "w", "--", "sh", "-c", "echo kept > a"});
  if (as_root()) {
    EXPECT_EQ(written.status, 125);
    EXPECT_TRUE(says_one_line(written, "no workspace and no folder")) << written.err;
  } else {
    EXPECT_EQ(written.status, 0) << written.err;
    EXPECT_EQ(run({"--workspace", "w", "--", "cat", "a"}).out, "kept\n");
    EXPECT_EQ(carrel({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
    const Box box = this->box({"--workspace", "w"});
    EXPECT_EQ(box.sh("echo more >> a; cat a").out, "kept\nmore\n");
  }
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  const Run mounted = run({"--mount", data + ":/data", "--", "echo", "came in"});
  EXPECT_EQ(mounted.status, 125);
  EXPECT_TRUE(
      says_one_line(mounted, as_root() ? "no workspace and no folder" : "nobody can compare"))
      << mounted.err;
  EXPECT_EQ(run({"--writable-root", "--", "sh", "-c", "echo x > /usr/x && cat /usr/x"}).out, "x\n");
}

TEST_P(DockerKata, TheEgressProcessDecidesWhatLeaves) {
  const Run none = run({"--", "bash", "-c",
                        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; "
                        "exec 3<>/dev/tcp/127.0.0.1/53 || echo closed"});
  EXPECT_NE(none.out.find("lo\nclosed"), std::string::npos) << none.out << none.err;
  const Box box = this->box({"--network", "allow=allowed.test"});
  const auto inside = [&](const std::string& url) {
    const Run told = box.sh("python3 - <<'END'\n" + fetching(url) + "END");
    return told.out + told.err;
  };
  const std::string allowed = inside("https://allowed.test/x");
  EXPECT_NE(allowed.find("hello from allowed.test /x"), std::string::npos) << allowed;
  for (const char* url : {"https://evil.test/", "http://10.1.2.3/", "http://169.254.169.254/"}) {
    EXPECT_EQ(inside(url).find("hello"), std::string::npos) << url;
  }
}

TEST_P(DockerKata, AServerInsideIsReachedByItsPort) {
  const Box box = this->box();
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  const std::string much(300'000, 'm');
  TcpClient client(port);
  client.send("line\n");
  EXPECT_EQ(client.read_line(), "line\n");
  client.send(much);
  client.finish();
  EXPECT_TRUE(client.read() == much + "end");
  EXPECT_FALSE(client.failed());
}

// What the engine was told is what it has, or there is no sandbox.
TEST_P(DockerKata, AnEngineThatWeakensAWallIsNoSandbox) {
  EXPECT_EQ(changed("pass").out, "came in\n");
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"host['CapAdd'] = ['SYS_ADMIN']", "HostConfig.CapAdd"},
      {"host['ReadonlyRootfs'] = False", "HostConfig.ReadonlyRootfs"},
      {"host['PidsLimit'] = 0", "HostConfig.PidsLimit"},
      {"host['NetworkMode'] = 'host'", "HostConfig.NetworkMode"},
      {"host['AutoRemove'] = False", "HostConfig.AutoRemove"},
      {"host['Runtime'] = 'runc'", "HostConfig.Runtime"},
      {"host['Binds'] = ['/:/host']", "HostConfig.Binds"},
      {"body['StdinOnce'] = False", "Config.StdinOnce"},
      {"body['User'] = '4242:4242'", "Config.User"},
  };
  for (const auto& row : kTable) {
    const Run run = changed("if body:\n    " + row.change);
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, row.said)) << row.change << run.err;
  }
}

// An engine that builds something else and says that it did not. The host cannot look at the
// container's processes, so they look themselves.
TEST_P(DockerKata, AnEngineThatLiesIsFoundOutFromInside) {
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
      {"host['IpcMode'] = 'host' if answer is None else 'private'" + usual, "ipc"},
      {"host['UTSMode'] = 'host' if answer is None else ''", "uts"},
      {"host['PidMode'] = 'host' if answer is None else ''" + usual, "PID namespace"},
      {"host['CgroupnsMode'] = 'host' if answer is None else 'private'", "cgroup"},
  };
  for (const auto& row : kTable) {
    const Run run = changed("if body or (answer and host and 'State' in answer):\n    " +
                            row.change + "\n    if body: body.update(Hostname='')");
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, "rely on th")) << row.change;
    EXPECT_NE(run.err.find(row.said), std::string::npos) << row.change << run.err;
  }
}

// All that comes over the engine's connection is somebody else's.
TEST_P(DockerKata, AStreamThatIsNoneIsNoSandbox) {
  const struct {
    std::string change;
    std::string said;
  } kTable[] = {
      {"say(b'HTTP/1.1 200 OK\\r\\n\\r\\n')", "status 200"},
      {"say(b'HTTP/1.1 101 UPGRADED\\r\\nConnection: Upgrade\\r\\nUpgrade: h2c\\r\\n\\r\\n')",
       "something else"},
      {"say(upgraded + b'too early')", "something else"},
      {"say(upgraded, b'\\x02\\0\\0\\0\\0\\0\\0\\x01x')", "malformed frame"},
      {"say(upgraded, b'\\x01\\0\\0\\0\\xff\\xff\\xff\\xff')", "malformed frame"},
      {"say(upgraded, b'\\x01\\0\\0\\0\\0\\0\\0\\x30' + b'x' * 48)", "is not the guest"},
      {"say(upgraded, b'\\x01\\0\\0\\0\\0\\0\\0\\x40' + b'x' * 64)", "is not the guest"},
      {"say(upgraded, b'', 'ends')", "ended before"},
  };
  for (const auto& row : kTable) {
    const Run run = changed("if path.endswith('stdout=1') and answer is None: " + row.change);
    EXPECT_EQ(run.status, 125) << row.change << run.out;
    EXPECT_TRUE(says_one_line(run, row.said)) << row.change << run.err;
    EXPECT_LT(run.duration, patient(seconds(10))) << row.change;
  }
}

TEST_P(DockerKata, ItEndsWithWhateverStandsForItAndWithItsContainer) {
  for (const char* what : {"ferry", "guest", "container"}) {
    const Box box = this->box();
    Process command(launch({"exec", box.id(), "--", "sh", "-c", "echo started; sleep 60"}));
    ASSERT_TRUE(command.wait_for_output("started", seconds(10)));
    if (what == std::string("container")) {
      std::string id = engine_->containers();
      id.pop_back();
      (void)engine_->ask("DELETE", "/containers/" + id + "?force=1");
    } else {
      const pid_t pid = what == std::string("ferry") ? ferry() : box.first_process();
      ASSERT_GT(pid, 1) << what;
      ASSERT_EQ(::kill(pid, SIGKILL), 0);
    }
    EXPECT_EQ(command.wait(seconds(3)).status, 125) << what;
    EXPECT_TRUE(eventually(seconds(2), [&] { return box.sh("true").status == 125; })) << what;
    EXPECT_TRUE(nothing_left()) << what;
    EXPECT_TRUE(nobody_stands()) << what;
  }
}

// The container sees the end of its input, also when nobody is left to have the engine remove it.
TEST_P(DockerKata, ItsContainerGoesWithoutTheOneWhoRemovesIt) {
  const Box box = this->box();
  for (const HostProcess& process : descendants()) {
    if (stands(process)) {
      ASSERT_EQ(::kill(process.pid, SIGKILL), 0);
    }
  }
  EXPECT_TRUE(eventually(seconds(5), [&] { return box.sh("true").status == 125; }));
  EXPECT_TRUE(nothing_left());
  EXPECT_TRUE(nobody_stands());
}

TEST_P(DockerKata, ItOutlivesItsKeeperAndEndsWithItsEngine) {
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
  Process command(launch({"exec", box.id(), "--", "sh", "-c", "echo started; sleep 60"}));
  ASSERT_TRUE(command.wait_for_output("started", seconds(10)));
  Process single(launch({"run", "--backend", "docker", "--runtime", "kata", "--", "sh", "-c",
                         "echo started; sleep 60"}));
  ASSERT_TRUE(single.wait_for_output("started", seconds(10)));
  ASSERT_GT(engine_->pid(), 1);
  ASSERT_EQ(::kill(engine_->pid(), SIGKILL), 0);
  for (Process* process : {&command, &single}) {
    const Run ended = process->wait(seconds(2));
    EXPECT_EQ(ended.status, 125) << ended.out << ended.err;
    EXPECT_FALSE(ended.timed_out);
    EXPECT_EQ(ended.err.find("carrel: "), 0U) << ended.err;
  }
  const Run after = box.sh("echo $x");
  EXPECT_EQ(after.status, 125);
  EXPECT_LT(after.duration, patient(seconds(2)));
  const Run run = this->run({"--", "true"});
  EXPECT_TRUE(says_one_line(run, "does not answer"));
  EXPECT_LT(run.duration, patient(seconds(2)));
  EXPECT_TRUE(nobody_stands());
  engine_->start_again();
  EXPECT_TRUE(eventually(seconds(20), [&] {
    EXPECT_EQ(this->run({"--", "true"}).status, 0);
    return nothing_left();
  }));
}

TEST_P(DockerKata, AnEngineThatIsKilledIsToldAtOnceWhereverItWas) {
  EXPECT_EQ(run({"--", "true"}).status, 0);
  for (const int wait_ms : {40, 160, 280, 400, 520}) {
    Process run(launch({"run", "--backend", "docker", "--runtime", "kata", "--", "sleep", "9"}));
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    ASSERT_GT(engine_->pid(), 1);
    ASSERT_EQ(::kill(engine_->pid(), SIGKILL), 0);
    const Run ended = run.wait(seconds(2));
    EXPECT_FALSE(ended.timed_out) << wait_ms;
    EXPECT_EQ(ended.status, 125) << wait_ms << ended.err;
    EXPECT_EQ(ended.err.find("carrel: "), 0U) << wait_ms << ended.err;
    engine_->start_again();
  }
  EXPECT_TRUE(eventually(seconds(20), [&] {
    const Run next = this->run({"--", "true"});
    EXPECT_EQ(next.status, 0) << next.err;
    return std::filesystem::is_empty(place().home(GetParam()) + "/run/docker") && nothing_left();
  }));
  EXPECT_TRUE(nobody_stands());
}

TEST_P(DockerKata, NothingIsLeftWhenItsMakerIsKilledInTheMiddle) {
  for (const int wait_ms : {0, 60, 150, 300, 450, 700}) {
    Process run(launch({"run", "--backend", "docker", "--runtime", "kata", "--", "sleep", "60"}));
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    run.send(SIGKILL);
    (void)run.wait(seconds(5));
  }
  EXPECT_EQ(run({"--", "true"}).status, 0);
  EXPECT_TRUE(eventually(seconds(40), [&] {
    (void)carrel({"run", "--", "true"});
    ::usleep(500'000);
    return std::filesystem::is_empty(place().home(GetParam()) + "/run/docker");
  }));
  EXPECT_TRUE(nothing_left()) << engine_->containers();
  EXPECT_TRUE(nobody_stands());
}

}  // namespace
}  // namespace carrel::test
