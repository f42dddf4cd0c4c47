#include "kernel/cgroup_limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

// A directory of plain files in the place of a cgroup: it shows what is written, on hosts whose
// controllers are bound to the other version. What the kernel makes of it is tested on real groups.
class PlainGroup : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cgroup_limits_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    path_ = name;
    auto opened = open_at(AT_FDCWD, path_, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(opened.ok());
    home_ = std::move(opened.value());
    ASSERT_EQ(::mkdirat(home_.get(), "g", 0700), 0);
  }
  void TearDown() override { ASSERT_TRUE(remove_tree_at(AT_FDCWD, path_).ok()); }

  void make(const std::string& file, std::string_view text = {}) {
    auto fd = open_at(home_.get(), "g/" + file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_TRUE(fd.ok());
    ASSERT_TRUE(write_all(fd.value().get(), text).ok());
  }
  std::string text(const std::string& file) {
    auto read = read_file_at(home_.get(), "g/" + file);
    return read.ok() ? read.value() : "(missing)";
  }
  CgroupEnforcement write(CgroupVersion version, const CgroupLimits& limits) {
    CgroupEnforcement enforced;
    Status status = write_limits(
        home_.get(), "g", version,
        ControllerSet{Controller::kMemory, Controller::kPids, Controller::kCpu}, limits, enforced);
    EXPECT_TRUE(status.ok());
    return enforced;
  }

  std::string path_;
  UniqueFd home_;
};

CgroupLimits all_limits() {
  CgroupLimits limits;
  limits.memory_bytes = 512U << 20U;
  limits.cpu_millis = 500;
  limits.pids = 50;
  return limits;
}

TEST_F(PlainGroup, V2LimitsAreWrittenAsTheKernelReadsThem) {
  for (const char* file :
       {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"}) {
    make(file);
  }
  CgroupLimits limits = all_limits();
  limits.oom_victim = OomVictim::kGroup;
  CgroupEnforcement enforced = write(CgroupVersion::kV2, limits);
  EXPECT_EQ(text("memory.max"), "536870912");
  EXPECT_EQ(text("memory.swap.max"), "0");
  EXPECT_EQ(text("memory.oom.group"), "1");
  EXPECT_EQ(text("pids.max"), "50");
  EXPECT_EQ(text("cpu.max"), "50000 100000");
  EXPECT_EQ(enforced.memory, CgroupSource::kCgroupV2);
  EXPECT_EQ(enforced.cpu, CgroupSource::kCgroupV2);
  EXPECT_EQ(enforced.pids, CgroupSource::kCgroupV2);
  EXPECT_TRUE(enforced.swap_accounted);
}

TEST_F(PlainGroup, OomGroupIsLeftAloneUnlessAskedFor) {
  make("memory.max");
  make("memory.oom.group", "0");
  (void)write(CgroupVersion::kV2, all_limits());
  EXPECT_EQ(text("memory.oom.group"), "0");
}

TEST_F(PlainGroup, MissingSwapFileIsReportedAndFine) {
  make("memory.max");
  CgroupEnforcement v2 = write(CgroupVersion::kV2, all_limits());
  EXPECT_EQ(v2.memory, CgroupSource::kCgroupV2);
  EXPECT_FALSE(v2.swap_accounted);
  make("memory.limit_in_bytes");
  CgroupEnforcement v1 = write(CgroupVersion::kV1, all_limits());
  EXPECT_EQ(v1.memory, CgroupSource::kCgroupV1);
  EXPECT_FALSE(v1.swap_accounted);
}

TEST_F(PlainGroup, MissingLimitFileIsNotEnforced) {
  CgroupEnforcement enforced = write(CgroupVersion::kV2, all_limits());
  EXPECT_EQ(enforced.memory, CgroupSource::kNone);
  EXPECT_EQ(enforced.cpu, CgroupSource::kNone);
  EXPECT_EQ(enforced.pids, CgroupSource::kNone);
  EXPECT_FALSE(enforced.swap_accounted);
}

TEST_F(PlainGroup, V1SwapLimitEqualsTheMemoryLimit) {
  for (const char* file : {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max",
                           "cpu.cfs_quota_us", "cpu.cfs_period_us"}) {
    make(file);
  }
  CgroupEnforcement enforced = write(CgroupVersion::kV1, all_limits());
  EXPECT_EQ(text("memory.limit_in_bytes"), "536870912");
  EXPECT_EQ(text("memory.memsw.limit_in_bytes"), "536870912");
  EXPECT_EQ(text("cpu.cfs_quota_us"), "50000");
  EXPECT_TRUE(enforced.swap_accounted);
  EXPECT_EQ(enforced.cpu, CgroupSource::kCgroupV1);
}

TEST_F(PlainGroup, OnlyMissingControllersAreTurnedOn) {
  make("cgroup.subtree_control", "memory\n");
  ControllerSet wanted{Controller::kMemory, Controller::kPids, Controller::kCpu};
  EXPECT_EQ(enable_controllers(home_.get(), "g", wanted), wanted);
  EXPECT_EQ(text("cgroup.subtree_control"), "+pids +cpu");
}

TEST_F(PlainGroup, ControllersThatCannotBeTurnedOnAreMissing) {
  ControllerSet wanted{Controller::kMemory, Controller::kPids};
  EXPECT_TRUE(enable_controllers(home_.get(), "g", wanted).empty());
}

TEST(CpuBandwidth, SmallSharesGetALongerPeriod) {
  EXPECT_EQ(cpu_bandwidth(1000).quota_us, 100'000U);
  EXPECT_EQ(cpu_bandwidth(1000).period_us, 100'000U);
  EXPECT_EQ(cpu_bandwidth(10).quota_us, 1'000U);
  EXPECT_EQ(cpu_bandwidth(10).period_us, 100'000U);
  EXPECT_EQ(cpu_bandwidth(5).quota_us, 1'000U);
  EXPECT_EQ(cpu_bandwidth(5).period_us, 200'000U);
  EXPECT_EQ(cpu_bandwidth(1).period_us, 1'000'000U);
}

TEST(CgroupLimits, ZeroIsNotALimit) {
  EXPECT_TRUE(check_limits({}).ok());
  CgroupLimits memory;
  memory.memory_bytes = 0;
  EXPECT_EQ(check_limits(memory).error().code, Code::kInvalid);
  CgroupLimits pids;
  pids.pids = 0;
  EXPECT_EQ(check_limits(pids).error().code, Code::kInvalid);
  CgroupLimits cpu;
  cpu.cpu_millis = 0;
  EXPECT_EQ(check_limits(cpu).error().code, Code::kInvalid);
  cpu.cpu_millis = 1'000'001;
  EXPECT_EQ(check_limits(cpu).error().code, Code::kInvalid);
}

TEST(EntryPath, TooLongAPathIsRefused) {
  EXPECT_STREQ(EntryPath("group", "file").text, "group/file");
  EXPECT_STREQ(EntryPath("", "file").text, "file");
  EXPECT_STREQ(EntryPath("group", "").text, "group");
  EXPECT_FALSE(EntryPath(std::string(600, 'a'), "file").fits);
  EXPECT_EQ(open_entry(AT_FDCWD, std::string(600, 'a'), "file", O_RDONLY), -ENAMETOOLONG);
}

}  // namespace
}  // namespace carrel::kernel
