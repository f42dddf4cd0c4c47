#include "backends/docker/working.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace carrel::docker {
namespace {

TEST(DockerWorking, ProgramsOfAnEngineAreKnownByTheirNames) {
  for (const char* name : {"dockerd", "containerd-shim", "runc:[2:INIT]", "runsc", "podman"}) {
    EXPECT_TRUE(works_for_engine(name)) << name;
  }
  for (const char* name : {"bash", "python3", "docker", "podmanx", "runsc-sandbox", ""}) {
    EXPECT_FALSE(works_for_engine(name)) << name;
  }
}

TEST(DockerWorking, ATaskIsReadPastWhateverItsNameHolds) {
  const TaskState task = parse_task("12 (a) R 1 (b)) D 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0");
  EXPECT_EQ(task.state, 'D');
  EXPECT_EQ(task.ticks, 42U);
  EXPECT_EQ(task.parent, 1);
  EXPECT_EQ(parse_task("12 (x").state, '?');
  EXPECT_EQ(parse_task("").ticks, 0U);
}

TEST(DockerWorking, WhoeverComputesWorksAndWhoeverSleepsIsQuiet) {
  const pid_t busy = ::fork();
  if (busy == 0) {
    for (volatile unsigned i = 0;;) {
      i = i + 1;
    }
  }
  ASSERT_GT(busy, 0);
  Working working(~0U);
  working.count(busy);
  bool seen = false;
  for (int i = 0; i < 20 && !seen; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seen = working.look();
  }
  EXPECT_TRUE(seen);
  ::kill(busy, SIGKILL);
}

}  // namespace
}  // namespace carrel::docker
