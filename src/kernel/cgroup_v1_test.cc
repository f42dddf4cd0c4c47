// A host without a v2 tree, made by naming a parent that exists only in v1 hierarchies.
#include <gmock/gmock.h>

#include "base/files.h"
#include "kernel/cgroup_test_support.h"

namespace carrel::kernel {
namespace {

using testing_support::exists_anywhere;
using testing_support::OwnLayout;
using testing_support::spawn_in;
using testing_support::wait_for;

// Groups of this test in the v1 hierarchies that have one of `controllers`.
class V1Parent {
 public:
  explicit V1Parent(ControllerSet controllers) {
    auto mountinfo = read_file_at(AT_FDCWD, "/proc/self/mountinfo");
    EXPECT_TRUE(mountinfo.ok());
    for (const CgroupMount& mount : parse_cgroup_mounts(mountinfo.value())) {
      for (unsigned i = 0; i < kControllerCount; ++i) {
        auto controller = static_cast<Controller>(i);
        if (!mount.controllers.has(controller) || !controllers.has(controller)) {
          continue;
        }
        std::string path = mount.mount_point + "/" + name();
        if (::mkdir(path.c_str(), 0755) == 0) {
          made_.push_back(path);
        }
      }
    }
  }
  V1Parent(const V1Parent&) = delete;
  V1Parent& operator=(const V1Parent&) = delete;
  ~V1Parent() {
    for (const std::string& path : made_) {
      EXPECT_EQ(::rmdir(path.c_str()), 0) << path;
    }
  }

  static std::string name() { return "carrel-v1test-" + std::to_string(::getpid()); }

 private:
  std::vector<std::string> made_;
};

constexpr ControllerSet kAll = {Controller::kMemory, Controller::kPids, Controller::kCpu,
                                Controller::kFreezer, Controller::kCpuacct};
constexpr ControllerSet kNoFreezer = {Controller::kMemory, Controller::kPids};

// A process, and another in a session of its own; both tell that they run.
int two_sessions(int report) {
  if (::fork() == 0) {
    ::setsid();
  }
  if (::write(report, "x", 1) != 1) {
    return 1;
  }
  for (;;) {
    ::pause();
  }
}

void expect_kill_ends_everything(const CgroupLayout& layout) {
  auto cgroup = Cgroup::create(layout, "victims", {});
  ASSERT_TRUE(cgroup.ok()) << cgroup.error().to_string();
  int report[2];
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  pid_t pid = spawn_in(*cgroup, [&] { return two_sessions(report[1]); });
  ::close(report[1]);
  char byte = 0;
  ASSERT_EQ(::read(report[0], &byte, 1), 1);
  ASSERT_EQ(::read(report[0], &byte, 1), 1);
  EXPECT_TRUE(cgroup->populated());
  Status killed = cgroup->kill();
  EXPECT_TRUE(killed.ok()) << killed.error().to_string();
  EXPECT_EQ(wait_for(pid), SIGKILL);
  // Both ends of the report are closed only when both processes are gone.
  EXPECT_EQ(::read(report[0], &byte, 1), 0);
  EXPECT_FALSE(cgroup->populated());
  EXPECT_TRUE(cgroup->remove().ok());
  EXPECT_FALSE(exists_anywhere(layout, "victims"));
  ::close(report[0]);
}

TEST(CgroupV1, KillFreezesAndSignals) {
  V1Parent parent(kAll);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kFreezer);
  ASSERT_FALSE(layout->has_v2());
  expect_kill_ends_everything(layout.get());
}

TEST(CgroupV1, KillNeedsNoFreezer) {
  V1Parent parent(kNoFreezer);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kPids);
  ASSERT_FALSE(layout->has_v2());
  EXPECT_EQ(layout->source(Controller::kFreezer), CgroupSource::kNone);
  expect_kill_ends_everything(layout.get());
}

TEST(CgroupV1, FreezerStopsAndThaws) {
  V1Parent parent(kAll);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kFreezer);
  auto cgroup = Cgroup::create(layout.get(), "cold", {});
  ASSERT_TRUE(cgroup.ok());
  int report[2];
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  pid_t pid = spawn_in(*cgroup, [&] { return two_sessions(report[1]); });
  char byte = 0;
  ASSERT_EQ(::read(report[0], &byte, 1), 1);
  Status frozen = cgroup->freeze();
  ASSERT_TRUE(frozen.ok()) << frozen.error().to_string();
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ::usleep(20'000);
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0);
  EXPECT_TRUE(cgroup->thaw().ok());
  EXPECT_EQ(wait_for(pid), SIGKILL);
  ::close(report[0]);
  ::close(report[1]);
}

TEST(CgroupV1, WithoutAFreezerFreezingIsUnsupported) {
  V1Parent parent(kNoFreezer);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kPids);
  auto cgroup = Cgroup::create(layout.get(), "warm", {});
  ASSERT_TRUE(cgroup.ok());
  EXPECT_EQ(cgroup->freeze().error().code, Code::kUnsupported);
  EXPECT_EQ(cgroup->clone_into_fd(), -1);
}

TEST(CgroupV1, UsageComesFromTheV1Files) {
  V1Parent parent(kAll);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kCpuacct);
  auto cgroup = Cgroup::create(layout.get(), "used", {});
  ASSERT_TRUE(cgroup.ok());
  EXPECT_EQ(cgroup->usage().cpu_usec, 0U);
  EXPECT_EQ(wait_for(spawn_in(*cgroup,
                              [] {
                                volatile unsigned x = 0;
                                for (unsigned i = 0; i < 20'000'000; ++i) {
                                  x = x + i;
                                }
                                return 0;
                              })),
            0);
  CgroupUsage usage = cgroup->usage();
  EXPECT_GT(usage.cpu_usec.value_or(0), 1000U);
  EXPECT_EQ(usage.pids, 0U);
  EXPECT_TRUE(usage.memory_bytes.has_value());
  EXPECT_TRUE(usage.cpu_throttled_periods.has_value());
}

TEST(CgroupV1, LeafNeedsALimitToExist) {
  V1Parent parent(kNoFreezer);
  OwnLayout layout("", V1Parent::name());
  CARREL_NEEDS(layout, Controller::kPids);
  auto cgroup = Cgroup::create(layout.get(), "leafy", {});
  ASSERT_TRUE(cgroup.ok());
  EXPECT_EQ(cgroup->subgroup("work", {}).error().code, Code::kUnsupported);
  CgroupLimits limits;
  limits.pids = 3;
  auto work = cgroup->subgroup("work", limits);
  ASSERT_TRUE(work.ok()) << work.error().to_string();
  EXPECT_EQ(work->enforced().pids, CgroupSource::kCgroupV1);
  EXPECT_EQ(work->enforced().memory, CgroupSource::kNone);
}

}  // namespace
}  // namespace carrel::kernel
