#include "backends/docker/working.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace carrel::docker {
namespace {

TEST(DockerWorking, WhoeverComputesWorksAndWhoeverSleepsIsQuiet) {
  const pid_t busy = ::fork();
  if (busy == 0) {
    for (volatile unsigned i = 0;;) {
      i = i + 1;
    }
  }
  ASSERT_GT(busy, 0);
  Working working("/nowhere", ~0U);
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
