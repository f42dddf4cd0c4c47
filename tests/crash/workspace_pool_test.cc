// Workspaces on file systems other than ext4: a btrfs or an xfs in a file, in the mount namespace
// of the test.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/unique_fd.h"
#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;

class Pool : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can mount a file system";
    }
  }

  static bool has_program(const std::string& name) {
    const std::string look = "PATH=$PATH:/usr/sbin:/sbin; command -v " + name + " > /dev/null";
    return std::system(look.c_str()) == 0;
  }
  // The state directory is one of this kind from now on.
  void put_home_on(const std::string& kind) {
    const std::string home = place().home(GetParam());
    const std::string image = home + ".img";
    const std::string make = "PATH=$PATH:/usr/sbin:/sbin; truncate -s 512M " + image + " && mkfs." +
                             kind + " -q " + image + " > /dev/null && mount -o loop " + image +
                             " " + home;
    ASSERT_EQ(std::system(make.c_str()), 0);
    ::unlink(image.c_str());
    home_ = home;
    place().give(home_, GetParam());
    ASSERT_EQ(::chmod(home_.c_str(), 0700), 0);
  }
  // A workspace with a size: full when it is full, with all its room when the host has none, and
  // nothing of the host's beyond that.
  void expect_held_size() {
    const Box box(GetParam(), {"--workspace", "w", "--disk", "40m", "--require", "disk"});
    const std::uint64_t before = room_left();
    const Run full = box.sh("dd if=/dev/urandom of=large bs=1M count=100 conv=fsync 2>&1");
    EXPECT_NE(full.out.find("No space left on device"), std::string::npos) << full.out << full.err;
    EXPECT_EQ(box.sh("s=$(stat -c %s large); test $s -ge 39000000 -a $s -le 46000000; echo $?").out,
              "0\n");
    EXPECT_GE(room_left() + (8U << 20), before) << "the host's disk is left alone";
    EXPECT_EQ(box.sh("rm large; sync; echo awake").out, "awake\n");
    const std::string fill = "dd if=/dev/zero of=" + home_ + "/other bs=1M 2> /dev/null";
    EXPECT_NE(std::system(fill.c_str()), 0) << "the host's disk is to be full";
    EXPECT_EQ(box.sh("head -c 39000000 /dev/urandom > again && sync && sha256sum again > s && "
                     "sha256sum --quiet -c s && echo whole")
                  .out,
              "whole\n")
        << "its room was set aside";
    ASSERT_EQ(::unlink((home_ + "/other").c_str()), 0);
    EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
    EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
    EXPECT_EQ(box.sh("rm again").status, 0);
    EXPECT_EQ(box.remove({"--force"}).status, 0);
    EXPECT_TRUE(eventually(std::chrono::seconds(30), [&] {
      struct stat disk{};
      return ::stat((home_ + "/workspaces/w/disk").c_str(), &disk) == 0 &&
             disk.st_blocks * 512 <= 12 << 20;
    })) << "what it does not hold is the host's again";
  }
  std::uint64_t room_left() const {
    struct statvfs space{};
    EXPECT_EQ(std::system(("sync -f " + home_).c_str()), 0);
    EXPECT_EQ(::statvfs(home_.c_str(), &space), 0);
    return space.f_bavail * space.f_frsize;
  }

  void TearDown() override {
    if (!home_.empty()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      kill_keepers();
      EXPECT_EQ(::umount2(home_.c_str(), MNT_DETACH), 0);
    }
    CarrelTest::TearDown();
  }

  std::string says(const std::vector<std::string>& words) const {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }

  // Whether all of a file is blocks that another has, too.
  static bool is_shared(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    constexpr unsigned kMost = 64;
    std::vector<char> room(sizeof(struct fiemap) + kMost * sizeof(struct fiemap_extent));
    auto* map = reinterpret_cast<struct fiemap*>(room.data());
    map->fm_length = FIEMAP_MAX_OFFSET;
    map->fm_flags = FIEMAP_FLAG_SYNC;
    map->fm_extent_count = kMost;
    if (::ioctl(file.get(), FS_IOC_FIEMAP, map) != 0 || map->fm_mapped_extents == 0) {
      return false;
    }
    bool shared = true;
    for (unsigned i = 0; i < map->fm_mapped_extents; ++i) {
      shared = shared && (map->fm_extents[i].fe_flags & FIEMAP_EXTENT_SHARED) != 0;
    }
    return shared;
  }

  std::string home_;
};
CARREL_AS_BOTH(Pool);

TEST_P(Pool, SnapshotsShareTheirContentsAndAreRestoredAndForked) {
  if (!has_program("mkfs.btrfs")) {
    GTEST_SKIP() << "mkfs.btrfs is not installed (the package btrfs-progs)";
  }
  put_home_on("btrfs");
  const Box box(GetParam(), {"--workspace", "w"});
  EXPECT_EQ(
      box.sh("head -c 3000000 /dev/urandom > large; echo one > a; sha256sum large > s").status, 0);
  const std::string first = says({"snapshot", "w"});
  unsigned found = 0;
  for (const auto& layer : fs::directory_iterator(home_ + "/layers")) {
    const std::string file = layer.path().string() + "/tree/large";
    found += fs::exists(file) ? 1U : 0U;
    EXPECT_TRUE(is_shared(file));
  }
  EXPECT_EQ(found, 1U);
  EXPECT_EQ(box.sh("echo two > a; rm large").status, 0);
  const std::string second = says({"snapshot", "w"});
  EXPECT_EQ(says({"restore", "w", first}), first);
  EXPECT_EQ(box.sh("cat a; sha256sum --quiet -c s; echo $?").out, "one\n0\n");
  const std::string fork = says({"fork", "w", "--from", second});
  EXPECT_EQ(carrel({"sh", fork, "cat a; ls"}).out, "two\na\ns\n");
  const Run checked = carrel({"workspace", "fsck"});
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
}

TEST_P(Pool, R57_ASizeIsHeldOnBtrfs) {
  if (!has_program("mkfs.btrfs")) {
    GTEST_SKIP() << "mkfs.btrfs is not installed (the package btrfs-progs)";
  }
  if (GetParam() != As::kRoot) {
    GTEST_SKIP() << "an ordinary user cannot mount a file";
  }
  put_home_on("btrfs");
  expect_held_size();
}

TEST_P(Pool, R57_ASizeIsHeldOnXfs) {
  if (!has_program("mkfs.xfs")) {
    GTEST_SKIP() << "mkfs.xfs is not installed (the package xfsprogs)";
  }
  if (GetParam() != As::kRoot) {
    GTEST_SKIP() << "an ordinary user cannot mount a file";
  }
  put_home_on("xfs");
  expect_held_size();
}

}  // namespace
}  // namespace carrel::test
