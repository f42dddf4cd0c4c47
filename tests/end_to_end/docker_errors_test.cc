// What goes wrong with a Docker engine, done to a real one: whoever waits is told within two
// seconds of the cause, and nothing is left.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/with_engine.h"

namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// From the cause to the error. The best of a few tries counts: others want processors, too.
constexpr milliseconds kSoon{2'000};
constexpr int kTries = 3;

class DockerErrors : public WithEngine<CarrelTest, DockerEngine::Kind::kOnSmallDisk> {
 protected:
  // Nothing is left when somebody made a sandbox after the engine was there again.
  void expect_recovery() const {
    EXPECT_TRUE(eventually(seconds(20), [&] {
      EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
      return std::filesystem::is_empty(place().home(GetParam()) + "/run/docker") &&
             // Its own goes a moment after the command.
             eventually(seconds(3), [&] { return engine_->containers().empty(); });
    })) << engine_->containers();
  }

  // A process that was started with these words.
  [[nodiscard]] static pid_t process_with(const std::string& words) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
          read_text("/proc/" + name + "/cmdline").value_or("").find(words) != std::string::npos) {
        return std::atoi(name.c_str());
      }
    }
    return 0;
  }
};
CARREL_AS_BOTH(DockerErrors);

TEST_P(DockerErrors, AnEngineThatStandsStillIsGivenUpWhereverItStopped) {
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  // What others do is not taken for its work, whatever they are called.
  Launch other;
  other.program = "/usr/bin/python3";
  other.arguments = {"-c",
                     "import time\n"
                     "open('/proc/self/comm', 'w').write('runc')\n"
                     "print('works', flush=True)\n"
                     "while True:\n"
                     "    end = time.monotonic() + 0.03\n"
                     "    while time.monotonic() < end: pass\n"
                     "    time.sleep(0.07)"};
  other.directory = "/";
  Process busy(other);
  ASSERT_TRUE(busy.wait_for_output("works", seconds(10)));
  for (const int wait_ms : {0, 40, 80, 120, 160, 200, 250}) {
    const milliseconds limit = patient(kSoon);
    milliseconds best = milliseconds::max();
    for (int tries = 0; tries < kTries && best >= limit; ++tries) {
      Process run(launch({"run", "--backend", "docker", "--", "true"}));
      ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
      ::kill(engine_->pid(), SIGSTOP);
      const Clock::time_point stopped = Clock::now();
      const Run ended = run.wait(seconds(20));
      best = std::min(best, std::chrono::duration_cast<milliseconds>(Clock::now() - stopped));
      ::kill(engine_->pid(), SIGCONT);
      EXPECT_TRUE(ended.status == 0 || says_one_line(ended, "the Docker engine at"))
          << wait_ms << ended.err;
    }
    EXPECT_LT(best, limit) << "stopped after " << wait_ms << " ms";
  }
  expect_recovery();
}

// It waits for a registry that says nothing, which is no reason to give up; that it stopped is.
TEST_P(DockerErrors, APullEndsWithAnEngineThatStandsStill) {
  Launch silent;
  silent.program = "/usr/bin/python3";
  silent.arguments = {"-c",
                      "import socket, time\n"
                      "server = socket.create_server(('127.0.0.1', 0))\n"
                      "print(server.getsockname()[1], flush=True)\n"
                      "time.sleep(100)"};
  silent.directory = "/";
  Process registry(silent);
  ASSERT_TRUE(registry.wait_for_output("\n", seconds(10)));
  const std::string port = std::to_string(std::atoi(registry.out().c_str()));
  const milliseconds limit = patient(kSoon);
  milliseconds best = milliseconds::max();
  for (int tries = 0; tries < kTries && best >= limit; ++tries) {
    Process pull(launch({"image", "pull", "docker:localhost:" + port + "/nothing:v1"}));
    EXPECT_FALSE(pull.says_within(seconds(3), "\n"));
    ::kill(engine_->pid(), SIGSTOP);
    const Clock::time_point stopped = Clock::now();
    const Run ended = pull.wait(seconds(20));
    best = std::min(best, std::chrono::duration_cast<milliseconds>(Clock::now() - stopped));
    ::kill(engine_->pid(), SIGCONT);
    EXPECT_EQ(ended.status, 125);
    EXPECT_TRUE(says_one_line(ended, "did not answer and does nothing")) << ended.err;
  }
  EXPECT_LT(best, limit);
}

TEST_P(DockerErrors, AnEngineThatIsKilledIsToldAtOnceWhereverItWas) {
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  for (const int wait_ms : {20, 80, 140, 200}) {
    Process run(launch({"run", "--backend", "docker", "--", "true"}));
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    ::kill(engine_->pid(), SIGKILL);
    const Clock::time_point killed = Clock::now();
    const Run ended = run.wait(seconds(20));
    EXPECT_LT(Clock::now() - killed, patient(kSoon)) << wait_ms;
    EXPECT_TRUE(ended.status == 0 || says_one_line(ended, "does not answer"))
        << wait_ms << ended.err;
    engine_->start_again();
  }
  expect_recovery();
}

TEST_P(DockerErrors, AFullDiskOfTheEnginesIsTold) {
  EXPECT_EQ(docker({"run", "--", "true"}).status, 0);
  const std::string filler = engine_->data() + "/filler";
  {
    std::ofstream file(filler, std::ios::binary);
    const std::string block(4096, 'x');
    for (int i = 0; i < 8192 && file.flush(); ++i) {
      file << block;
    }
  }
  const milliseconds limit = patient(kSoon);
  milliseconds best = milliseconds::max();
  for (int tries = 0; tries < kTries && best >= limit; ++tries) {
    const Run run = docker({"run", "--", "echo", "came in"});
    EXPECT_EQ(run.status, 125) << run.out;
    EXPECT_TRUE(says_one_line(run, "no space left on device")) << run.err;
    EXPECT_NE(run.err.find("make room where the engine keeps its data"), std::string::npos);
    best = std::min(best, run.duration);
  }
  EXPECT_LT(best, limit);
  ASSERT_EQ(::unlink(filler.c_str()), 0);
  expect_recovery();
}

TEST_P(DockerErrors, ACommandEndsWithTheContainerOfARestartedEngine) {
  const Box box = this->box();
  Process command(launch({"exec", box.id(), "--", "sh", "-c", "echo started; sleep 60"}));
  ASSERT_TRUE(command.wait_for_output("started", seconds(10)));
  engine_->start_again();  // it ends what it has before it goes
  const Run run = command.wait(kSoon);
  EXPECT_EQ(run.status, 125) << run.out << run.err;
  EXPECT_EQ(box.sh("true").status, 125);
  expect_recovery();
}

// Whoever looks after a container for the engine: the engine ends the container then.
TEST_P(DockerErrors, ASandboxEndsWithTheRuntimesProcess) {
  const Box box = this->box();
  Process command(launch({"exec", box.id(), "--", "sh", "-c", "echo started; sleep 60"}));
  ASSERT_TRUE(command.wait_for_output("started", seconds(10)));
  std::string id = engine_->containers();
  id.pop_back();
  const pid_t shim = process_with(std::string("-id\0", 4) + id);
  ASSERT_GT(shim, 1);
  ::kill(shim, SIGKILL);
  const Run run = command.wait(kSoon);
  EXPECT_EQ(run.status, 125) << run.out << run.err;
  EXPECT_EQ(box.sh("true").status, 125);
  expect_recovery();
}

}  // namespace
}  // namespace carrel::test
