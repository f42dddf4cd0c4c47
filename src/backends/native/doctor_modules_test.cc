#include "backends/native/doctor_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::native {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kModules[] =
    "kernel/net/sctp/sctp.ko.xz: kernel/lib/libcrc32c.ko.xz\n"
    "kernel/drivers/net/can/dev/can-dev.ko:\n"
    "kernel/net/can/can.ko:\n"
    "kernel/crypto/algif_hash.ko.zst: kernel/crypto/af_alg.ko.zst\n"
    "kernel/fs/ext4/ext4.ko:\n";

TEST(DoctorModules, ThoseThatAnyoneCanHaveLoadedAreNamed) {
  EXPECT_THAT(loadable_risks(kModules, ""), ElementsAre("algif_hash", "can", "sctp"));
  EXPECT_THAT(loadable_risks("", ""), IsEmpty());
}

TEST(DoctorModules, ForbiddenOnesAreNot) {
  EXPECT_THAT(loadable_risks(kModules,
                             "# a comment\ninstall sctp /bin/false\n"
                             "install algif-hash /usr/bin/true\n"),
              ElementsAre("can"));
}

// It keeps a module from being loaded for a device, not from being loaded by its name.
TEST(DoctorModules, ABlacklistForbidsNothing) {
  EXPECT_THAT(loadable_risks(kModules, "blacklist sctp\ninstall sctp /sbin/modprobe other\n"),
              ElementsAre("algif_hash", "can", "sctp"));
}

}  // namespace
}  // namespace carrel::native
