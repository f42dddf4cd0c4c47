// Limits on real groups of this machine: the kernel, not the text of a file, has to hold them.
#include <poll.h>
#include <sys/mman.h>
#include <time.h>

#include "kernel/cgroup_test_support.h"

namespace carrel::kernel {
namespace {

using testing_support::OwnLayout;
using testing_support::spawn_in;
using testing_support::wait_for;

constexpr std::size_t kMebibyte = 1U << 20U;

CgroupLimits memory_limit(std::uint64_t bytes) {
  CgroupLimits limits;
  limits.memory_bytes = bytes;
  return limits;
}

// Touches so much memory; 0 if it lived through it.
int touch(std::size_t bytes) {
  void* area = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    return 1;
  }
  auto* at = static_cast<volatile char*>(area);
  for (std::size_t i = 0; i < bytes; i += 4096) {
    at[i] = 1;
  }
  return 0;
}

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

TEST(CgroupMemory, TouchingTooMuchIsKilledAndCounted) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kMemory);
  auto cgroup = Cgroup::create(layout.get(), "oom", memory_limit(32 * kMebibyte));
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  EXPECT_EQ(cgroup->enforced().memory, layout->source(Controller::kMemory));
  auto event = cgroup->oom_event_fd();
  ASSERT_TRUE(event.ok()) << event.error().to_string();
  pollfd waiting{event.value().get(), POLLIN, 0};

  EXPECT_EQ(wait_for(spawn_in(*cgroup, [] { return touch(8 * kMebibyte); })), 0);
  EXPECT_EQ(cgroup->oom_kills(), 0U);
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);

  EXPECT_TRUE(was_killed(wait_for(spawn_in(*cgroup, [] { return touch(128 * kMebibyte); }))));
  EXPECT_EQ(cgroup->oom_kills(), 1U);
  EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
  EXPECT_GE(cgroup->usage().memory_peak_bytes.value_or(0), 16 * kMebibyte);
  EXPECT_TRUE(cgroup->remove().ok());
}

TEST(CgroupMemory, LeafIsKilledWhileItsSiblingLives) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kMemory);
  auto cgroup = Cgroup::create(layout.get(), "pair", {});
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  auto guest = cgroup->subgroup("guest", memory_limit(64 * kMebibyte));
  auto work = cgroup->subgroup("work", memory_limit(16 * kMebibyte));
  ASSERT_TRUE(guest.ok() && work.ok());
  pid_t sibling = spawn_in(*guest, [] { return ::pause(); });
  EXPECT_TRUE(was_killed(wait_for(spawn_in(*work, [] { return touch(64 * kMebibyte); }))));
  EXPECT_EQ(work->oom_kills(), 1U);
  EXPECT_EQ(guest->oom_kills(), 0U);
  EXPECT_EQ(cgroup->oom_kills(), 1U);
  EXPECT_EQ(::waitpid(sibling, nullptr, WNOHANG), 0);
  EXPECT_TRUE(guest->populated());
  EXPECT_FALSE(work->populated());
  EXPECT_TRUE(cgroup->remove().ok());
  EXPECT_TRUE(was_killed(wait_for(sibling)));
}

TEST(CgroupMemory, LimitCanBeRaisedAndLowered) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kMemory);
  auto cgroup = Cgroup::create(layout.get(), "grow", memory_limit(16 * kMebibyte));
  ASSERT_TRUE(cgroup.ok());
  Status raised = cgroup->set_limits(memory_limit(128 * kMebibyte));
  ASSERT_TRUE(raised.ok()) << raised.error().to_string();
  EXPECT_EQ(wait_for(spawn_in(*cgroup, [] { return touch(64 * kMebibyte); })), 0);
  Status lowered = cgroup->set_limits(memory_limit(16 * kMebibyte));
  ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
  EXPECT_TRUE(was_killed(wait_for(spawn_in(*cgroup, [] { return touch(64 * kMebibyte); }))));
}

// Forks until it is refused; the number of children, or 100 if the refusal was not EAGAIN.
int fork_until_refused() {
  for (int made = 0; made < 60; ++made) {
    pid_t child = ::fork();
    if (child < 0) {
      return errno == EAGAIN ? made : 100;
    }
    if (child == 0) {
      ::pause();
    }
  }
  return 99;
}

TEST(CgroupPids, ForkStopsWithTryAgainAtTheLimit) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kPids);
  CgroupLimits limits;
  limits.pids = 8;
  auto cgroup = Cgroup::create(layout.get(), "forks", limits);
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  EXPECT_EQ(cgroup->enforced().pids, layout->source(Controller::kPids));
  EXPECT_EQ(cgroup->pids_limit_hits(), 0U);
  int status = wait_for(spawn_in(*cgroup, fork_until_refused));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_GE(cgroup->pids_limit_hits(), 1U);
  EXPECT_EQ(cgroup->usage().pids, 7U);
  EXPECT_TRUE(cgroup->remove().ok());
}

TEST(CgroupPids, LeafCountsTheRefusalsOfItsParentsLimit) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kPids);
  CgroupLimits limits;
  limits.pids = 5;
  auto cgroup = Cgroup::create(layout.get(), "above", limits);
  ASSERT_TRUE(cgroup.ok());
  auto work = cgroup->subgroup("work", {});
  ASSERT_TRUE(work.ok()) << work.error().to_string();
  int status = wait_for(spawn_in(*work, fork_until_refused));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_GE(cgroup->pids_limit_hits(), 1U);
}

TEST(CgroupCpu, BusyLoopIsThrottled) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kCpu);
  CgroupLimits limits;
  limits.cpu_millis = 100;
  auto cgroup = Cgroup::create(layout.get(), "busy", limits);
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  EXPECT_EQ(cgroup->enforced().cpu, layout->source(Controller::kCpu));
  EXPECT_EQ(cgroup->usage().cpu_throttled_periods, 0U);
  int status = wait_for(spawn_in(*cgroup, [] {
    timespec used{};
    do {
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 60'000'000);
    return 0;
  }));
  EXPECT_EQ(status, 0);
  CgroupUsage usage = cgroup->usage();
  EXPECT_GE(usage.cpu_throttled_periods.value_or(0), 1U);
  EXPECT_GE(usage.cpu_usec.value_or(0), 40'000U);
}

TEST(CgroupCpu, SharesBelowAHundredthAreTaken) {
  OwnLayout layout;
  CARREL_NEEDS(layout, Controller::kCpu);
  CgroupLimits limits;
  limits.cpu_millis = 1;
  auto cgroup = Cgroup::create(layout.get(), "tiny", limits);
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  EXPECT_NE(cgroup->enforced().cpu, CgroupSource::kNone);
  limits.cpu_millis = 2000;
  Status raised = cgroup->set_limits(limits);
  EXPECT_TRUE(raised.ok()) << raised.error().to_string();
}

}  // namespace
}  // namespace carrel::kernel
