#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "attacks/attack_test.h"
#include "support/patience.h"

// Attacks on what all sandboxes share: processors, memory, disks, and the patience of the caller.
namespace carrel::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LimitAttack : public AttackTest {};
CARREL_AS_BOTH(LimitAttack);

TEST_P(LimitAttack, G01_AForkBombLeavesOthersAlone) {
  Process bomb(launch({"run", "--timeout", "5", "--", "bash", "-c", ":(){ :|:& };:; wait"}));
  std::this_thread::sleep_for(milliseconds(500));
  for (int i = 0; i < 3; ++i) {
    const Run other = script("echo ok");
    EXPECT_EQ(other.out, "ok\n") << other.err;
    EXPECT_LT(other.duration, patient(seconds(5)));
  }
  EXPECT_FALSE(bomb.wait(seconds(15)).timed_out);
}

TEST_P(LimitAttack, G04_SwapDoesNotExtendMemory) {
  Process box(launch({"run", "--memory", "64m", "--", "bash", "-c", "echo up; sleep 20"}));
  ASSERT_TRUE(box.wait_for_output("up", seconds(10)));
  bool looked = false;
  const std::string mount = v1_mount("memory");
  for (const HostProcess& process : descendants()) {
    EXPECT_EQ(status_field(process.pid, "VmSwap").find_first_not_of(" 0kB\t"), std::string::npos)
        << process.name;
    const std::string groups =
        read_text("/proc/" + std::to_string(process.pid) + "/cgroup").value_or("");
    const std::size_t at = groups.find(":memory:");
    if (process.name != "sleep" || at == groups.npos || mount.empty()) {
      continue;
    }
    const std::string path = groups.substr(at + 8, groups.find('\n', at) - at - 8);
    const auto both = read_text(mount + path + "/memory.memsw.limit_in_bytes");
    if (as_root() && both.has_value()) {
      looked = true;
      EXPECT_EQ(both, read_text(mount + path + "/memory.limit_in_bytes"));
    }
  }
  if (as_root() && !looked) {
    const std::string swaps = read_text("/proc/swaps").value_or("");
    EXPECT_EQ(swaps.find('\n'), swaps.size() - 1) << "there is swap, and nothing limits it";
  }
  box.send(SIGTERM);
  EXPECT_FALSE(box.wait(seconds(10)).timed_out);
}

TEST_P(LimitAttack, G08_FloodsOfOutputAreCutAndSaidToBe) {
  for (const char* text : {"yes", "tr '\\0' x < /dev/zero", "yes & yes >&2"}) {
    const Run run = attack({"run", "--json", "--timeout", "2", "--", "bash", "-c", text});
    EXPECT_EQ(run.status, 124) << text << run.err;
    EXPECT_NE(run.out.find("\"truncated\":true"), std::string::npos) << text;
    EXPECT_LT(run.out.size(), 64U << 20) << text;
    EXPECT_LT(run.max_rss_kib, 256 << 10) << text;
    EXPECT_LT(run.duration, patient(seconds(8))) << text;
  }
}

TEST_P(LimitAttack, G08_ASlowReaderHoldsNothingInMemory) {
  Process box(launch({"run", "--timeout", "3", "--", "yes"}));
  std::this_thread::sleep_for(seconds(2));
  for (const HostProcess& process : descendants()) {
    const std::string resident = status_field(process.pid, "VmRSS");
    EXPECT_LT(std::atol(resident.c_str()), 128 << 10) << process.name;
  }
  const Run run = box.wait(seconds(20));
  EXPECT_EQ(run.status, 124);
}

TEST_P(LimitAttack, G11_AStormOfSyncsLeavesTheHostsDiskUsable) {
  Process storm(launch({"run", "--timeout", "4", "--", "bash", "-c",
                        "for i in 1 2 3 4; do while :; do head -c 1M /dev/zero > /workspace/$i; "
                        "sync; sync -f /workspace/$i; done & done; wait"}));
  std::this_thread::sleep_for(seconds(1));
  const std::string path = place().work(GetParam()) + "/synced";
  milliseconds longest{0};
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::write(fd, "x", 1), 1);
    ::fsync(fd);
    ::close(fd);
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(
                                    std::chrono::steady_clock::now() - start));
  }
  EXPECT_LT(longest, patient(seconds(2)));
  EXPECT_FALSE(storm.wait(seconds(15)).timed_out);
}

TEST_P(LimitAttack, G13_NothingOutlivesTheTimeout) {
  for (const char* text :
       {"trap '' TERM INT HUP; while :; do sleep 1; done", "kill -STOP $$",
        "(setsid sleep 1000 &) ; (setsid bash -c 'trap \"\" TERM; sleep 1000' &); sleep 1000",
        "nohup sleep 1000 >/dev/null 2>&1 & disown; sleep 1000 | sleep 1000",
        "python3 -c 'import os\nfor i in range(20):\n  os.fork() or os.setsid()\n  break\n"
        "import time; time.sleep(1000)'"}) {
    const Run run = attack({"run", "--timeout", "1", "--", "bash", "-c", text});
    EXPECT_EQ(run.status, 124) << text << run.err;
    EXPECT_LT(run.duration, patient(seconds(5))) << text;
    EXPECT_TRUE(eventually(seconds(2), [] {
      return !is_running("sleep") && !is_running("python3");
    })) << text;
  }
}

TEST_P(LimitAttack, G16_AStormOfTimersEndsInTime) {
  const Run run = attack({"run", "--timeout", "2", "--", "python3", "-c",
                          "import signal,time\nsignal.signal(signal.SIGALRM, lambda *_: None)\n"
                          "signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)\n"
                          "while True: time.sleep(1)"});
  EXPECT_EQ(run.status, 124) << run.err;
  EXPECT_LT(run.duration, patient(seconds(6)));
}

TEST_P(LimitAttack, H01_ADaemonEndsWithItsOneShot) {
  const Run run = script("setsid nohup sleep 4242 >/dev/null 2>&1 & (setsid sleep 4242 &); exit 0");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_LT(run.duration, patient(seconds(5)));
  EXPECT_FALSE(is_running("sleep"));
}

}  // namespace
}  // namespace carrel::test
