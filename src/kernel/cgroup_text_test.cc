#include "kernel/cgroup_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::kernel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::string_view kV2Host =
    "23 29 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
    "33 23 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 "
    "rw,nsdelegate,memory_recursiveprot\n"
    "34 23 0:29 / /sys/fs/pstore rw,nosuid shared:10 - pstore pstore rw\n";

constexpr std::string_view kHybridHost =
    "30 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate\n"
    "32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n"
    "36 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:16 - cgroup cgroup rw,cpu,cpuacct\n"
    "38 30 0:34 / /sys/fs/cgroup/memory rw shared:18 - cgroup cgroup rw,memory\n"
    "39 30 0:35 / /sys/fs/cgroup/net_cls,net_prio rw shared:19 - cgroup cgroup "
    "rw,net_cls,net_prio\n"
    "40 30 0:36 / /sys/fs/cgroup/freezer rw shared:20 - cgroup cgroup rw,freezer\n"
    "41 30 0:37 / /sys/fs/cgroup/pids rw shared:21 - cgroup cgroup rw,pids\n";

TEST(CgroupMounts, V2HostHasOneMount) {
  auto mounts = parse_cgroup_mounts(kV2Host);
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].version, CgroupVersion::kV2);
  EXPECT_EQ(mounts[0].mount_point, "/sys/fs/cgroup");
  EXPECT_EQ(mounts[0].root, "/");
  EXPECT_TRUE(mounts[0].controllers.empty());
}

TEST(CgroupMounts, HybridHostHasV2AndTheUsedV1Hierarchies) {
  auto mounts = parse_cgroup_mounts(kHybridHost);
  ASSERT_EQ(mounts.size(), 5U);
  EXPECT_EQ(mounts[0].version, CgroupVersion::kV2);
  EXPECT_EQ(mounts[1].controllers, (ControllerSet{Controller::kCpu, Controller::kCpuacct}));
  EXPECT_EQ(mounts[1].mount_point, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(mounts[2].controllers, ControllerSet{Controller::kMemory});
  EXPECT_EQ(mounts[3].controllers, ControllerSet{Controller::kFreezer});
  EXPECT_EQ(mounts[4].controllers, ControllerSet{Controller::kPids});
}

TEST(CgroupMounts, ContainerMountShowsItsOwnGroupAsRoot) {
  auto mounts = parse_cgroup_mounts(
      "812 803 0:33 /docker/3f0c /sys/fs/cgroup/memory ro,nosuid master:18 - cgroup cgroup "
      "rw,memory\n");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].root, "/docker/3f0c");
}

TEST(CgroupMounts, OptionalFieldsMayBeMissingOrMany) {
  auto mounts = parse_cgroup_mounts(
      "1 0 0:1 / /a rw - cgroup2 none rw\n"
      "2 0 0:2 / /b rw shared:1 master:2 propagate_from:3 - cgroup cgroup rw,pids\n");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0].mount_point, "/a");
  EXPECT_EQ(mounts[1].mount_point, "/b");
}

TEST(CgroupMounts, EscapedPathsAreReadable) {
  auto mounts = parse_cgroup_mounts("1 0 0:1 /a\\134b /mnt/my\\040groups rw - cgroup2 none rw\n");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].mount_point, "/mnt/my groups");
  EXPECT_EQ(mounts[0].root, "/a\\b");
}

TEST(CgroupMounts, LaterMountAtTheSamePlaceHidesTheEarlier) {
  auto mounts = parse_cgroup_mounts(
      "1 0 0:1 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n"
      "2 1 0:2 /x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  ASSERT_EQ(mounts.size(), 1U);
  EXPECT_EQ(mounts[0].root, "/x");
}

TEST(CgroupMounts, OtherFileSystemsAndBrokenLinesAreLeftOut) {
  EXPECT_THAT(parse_cgroup_mounts(""), IsEmpty());
  EXPECT_THAT(parse_cgroup_mounts("\n\n - cgroup2\n1 2 - cgroup2 x rw\n"), IsEmpty());
  EXPECT_THAT(parse_cgroup_mounts("1 0 0:1 / /a rw - cgroupfs none rw,memory\n"), IsEmpty());
}

TEST(MountField, OnlyWholeOctalEscapesAreDecoded) {
  EXPECT_EQ(unescape_mount_field("a\\040b\\011c\\012\\134"), "a b\tc\n\\");
  EXPECT_EQ(unescape_mount_field("a\\04"), "a\\04");
  EXPECT_EQ(unescape_mount_field("a\\9990"), "a\\9990");
  EXPECT_EQ(unescape_mount_field("\\777x"), "\\777x");
}

TEST(CgroupMemberships, V2HostHasOneLine) {
  auto own = parse_cgroup_memberships("0::/user.slice/user-1000.slice/session-2.scope\n");
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].version, CgroupVersion::kV2);
  EXPECT_EQ(own[0].path, "/user.slice/user-1000.slice/session-2.scope");
}

TEST(CgroupMemberships, V1LinesAreKnownByTheirControllers) {
  auto own = parse_cgroup_memberships(
      "12:memory:/user.slice\n"
      "5:cpu,cpuacct:/\n"
      "3:hugetlb:/\n"
      "1:name=systemd:/init.scope\n"
      "0::/init.scope\n");
  ASSERT_EQ(own.size(), 3U);
  EXPECT_EQ(own[0].controllers, ControllerSet{Controller::kMemory});
  EXPECT_EQ(own[0].path, "/user.slice");
  EXPECT_EQ(own[1].controllers, (ControllerSet{Controller::kCpu, Controller::kCpuacct}));
  EXPECT_EQ(own[2].version, CgroupVersion::kV2);
}

TEST(CgroupMemberships, ColonsBelongToThePath) {
  auto own = parse_cgroup_memberships("0::/kubepods/cri-containerd:77\n");
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].path, "/kubepods/cri-containerd:77");
}

TEST(PathBelowMount, IsRelativeToTheMountRoot) {
  EXPECT_EQ(path_below_mount("/", "/"), "");
  EXPECT_EQ(path_below_mount("/", "/a/b"), "a/b");
  EXPECT_EQ(path_below_mount("/docker/3f", "/docker/3f"), "");
  EXPECT_EQ(path_below_mount("/docker/3f", "/docker/3f/x"), "x");
}

TEST(PathBelowMount, GroupOutsideTheMountHasNone) {
  EXPECT_EQ(path_below_mount("/docker/3f", "/docker/3f0"), std::nullopt);
  EXPECT_EQ(path_below_mount("/docker/3f", "/"), std::nullopt);
  EXPECT_EQ(path_below_mount("/..", "/"), std::nullopt);
  EXPECT_EQ(path_below_mount("/", "/../other"), std::nullopt);
}

TEST(CommonAncestor, ComparesWholeNames) {
  EXPECT_EQ(common_ancestor("a/b/c", "a/b/d"), "a/b");
  EXPECT_EQ(common_ancestor("a/b", "a/bc"), "a");
  EXPECT_EQ(common_ancestor("a", "b"), "");
  EXPECT_EQ(common_ancestor("", "a"), "");
  EXPECT_EQ(common_ancestor("a/b", "a/b"), "a/b");
}

TEST(ControllerList, UnknownNamesAreIgnored) {
  EXPECT_EQ(parse_controller_list("cpuset cpu io memory hugetlb pids rdma misc\n"),
            (ControllerSet{Controller::kCpu, Controller::kMemory, Controller::kPids}));
  EXPECT_TRUE(parse_controller_list("\n").empty());
  EXPECT_TRUE(parse_controller_list("").empty());
}

TEST(Counters, AreFoundByTheWholeKey) {
  constexpr std::string_view kEvents = "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n";
  EXPECT_EQ(find_counter(kEvents, "oom_kill"), 2U);
  EXPECT_EQ(find_counter(kEvents, "oom"), 3U);
  EXPECT_EQ(find_counter(kEvents, "oom_group_kill"), std::nullopt);
  EXPECT_EQ(find_counter("oom_kill x\n", "oom_kill"), std::nullopt);
}

TEST(Counters, MaxIsNoNumber) {
  EXPECT_EQ(parse_counter("18446744073709551615\n"), UINT64_MAX);
  EXPECT_EQ(parse_counter("max\n"), std::nullopt);
  EXPECT_EQ(parse_counter(""), std::nullopt);
  EXPECT_EQ(parse_counter("12x\n"), std::nullopt);
}

TEST(ProcessIds, ProcessOfAnOuterNamespaceIsLeftOut) {
  EXPECT_THAT(parse_process_ids("1\n0\n4194303\n"), ElementsAre(1, 4194303));
  EXPECT_THAT(parse_process_ids(""), IsEmpty());
  EXPECT_THAT(parse_process_ids("x\n-4\n"), IsEmpty());
}

}  // namespace
}  // namespace carrel::kernel
