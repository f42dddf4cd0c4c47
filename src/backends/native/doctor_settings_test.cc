#include "backends/native/doctor_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::native {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DoctorSettings, TheStatusFileTellsOfAFilterAndOfCapabilities) {
  Surroundings around;
  parse_status("Name:\tx\nCapEff:\t0000000000000080\nCapBnd:\t000001ff7fffffff\nSeccomp:\t2\n",
               around);
  EXPECT_EQ(around.capabilities, 0x80U);
  EXPECT_EQ(around.bounding_capabilities, 0x1ff7fffffffU);
  EXPECT_TRUE(around.under_seccomp);
  parse_status("Seccomp:\t0\n", around);
  EXPECT_FALSE(around.under_seccomp);
}

TEST(DoctorSettings, AnOrdinaryMountTableHasNothingToReport) {
  Surroundings around;
  parse_mounts(
      "1 0 0:2 / / rw - rootfs rootfs rw\n"
      "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
      "23 22 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n",
      around);
  EXPECT_FALSE(around.in_chroot);
  EXPECT_FALSE(around.root_is_ramfs);
  EXPECT_TRUE(around.proc_mounted);
  EXPECT_THAT(around.proc_covers, IsEmpty());
}

TEST(DoctorSettings, CoversOfProcAreFound) {
  Surroundings around;
  parse_mounts(
      "27 1 0:50 / / rw - overlay overlay rw\n"
      "22 27 0:21 / /proc rw - proc proc rw\n"
      "24 22 0:21 /bus /proc/bus ro - proc proc rw\n"
      "25 22 0:40 /null /proc/kcore rw - tmpfs tmpfs rw\n",
      around);
  EXPECT_THAT(around.proc_covers, ElementsAre("/proc/bus", "/proc/kcore"));
}

TEST(DoctorSettings, AProcMountedLaterHidesTheCovers) {
  Surroundings around;
  parse_mounts(
      "27 1 0:50 / / rw - ext4 x rw\n"
      "24 22 0:21 /bus /proc/bus ro - proc proc rw\n"
      "22 27 0:21 / /proc rw - proc proc rw\n",
      around);
  EXPECT_THAT(around.proc_covers, IsEmpty());
}

TEST(DoctorSettings, AnInitialRamfsAndAChrootAreFound) {
  Surroundings around;
  parse_mounts("1 0 0:2 / / rw - rootfs rootfs rw\n", around);
  EXPECT_TRUE(around.root_is_ramfs);
  EXPECT_FALSE(around.proc_mounted);
  parse_mounts("22 27 0:21 / /proc rw - proc proc rw\n", around);
  EXPECT_TRUE(around.in_chroot);
}

TEST(DoctorSettings, TheControllersFileTellsV1FromSwitchedOff) {
  constexpr char kText[] =
      "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t15\t1\nmemory\t0\t75\t0\n";
  LimitFacts cpu;
  LimitFacts memory;
  parse_controller(kText, "cpu", cpu);
  parse_controller(kText, "memory", memory);
  EXPECT_TRUE(cpu.on_v1);
  EXPECT_FALSE(cpu.disabled_in_kernel);
  EXPECT_FALSE(memory.on_v1);
  EXPECT_TRUE(memory.disabled_in_kernel);
}

TEST(DoctorSettings, AnIdIsInAMapFromItsFirstToItsLast) {
  EXPECT_TRUE(map_has_id("         0          0 4294967295\n", 0x70000000));
  EXPECT_FALSE(map_has_id("0 1000 1\n1 100000 65536\n", 0x70000000));
  EXPECT_TRUE(map_has_id("0 1000 1\n1 100000 65536\n", 65536));
  EXPECT_FALSE(map_has_id("0 1000 1\n1 100000 65536\n", 65537));
  EXPECT_FALSE(map_has_id("", 0));
}

TEST(DoctorSettings, AUserIsFoundByItsNumber) {
  constexpr char kPasswd[] = "root:x:0:0:root:/root:/bin/sh\n\nbad\nanna:x:1000:7:,,,:/h:/bin/sh\n";
  EXPECT_EQ(user_name(kPasswd, 0), "root");
  EXPECT_EQ(user_name(kPasswd, 1000), "anna");
  EXPECT_EQ(user_name(kPasswd, 7), "");
}

TEST(DoctorSettings, LogindsDropInsWinOverItsFileAndThatOverTheDefault) {
  EXPECT_TRUE(logind_kills({}));
  EXPECT_FALSE(logind_kills({"[Login]\n#KillUserProcesses=no\n"}));
  EXPECT_TRUE(logind_kills({"#KillUserProcesses=no\n", "KillUserProcesses=yes\n"}));
  EXPECT_FALSE(logind_kills({"KillUserProcesses=yes\n", "KillUserProcesses=no\n"}));
}

TEST(DoctorSettings, ThisHostSaysWhatItRuns) {
  const Surroundings around = look_around();
  EXPECT_NE(around.kernel, "");
  EXPECT_TRUE(around.proc_mounted);
  EXPECT_FALSE(around.in_chroot);
}

}  // namespace
}  // namespace carrel::native
