// Workspaces on a file system that shares blocks: a btrfs in a file, in the mount namespace of the
// test.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
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
    const std::string path = "PATH=$PATH:/usr/sbin:/sbin; ";
    if (std::system((path + "command -v mkfs.btrfs > /dev/null").c_str()) != 0) {
      GTEST_SKIP() << "mkfs.btrfs is not installed (the package btrfs-progs)";
    }
    const std::string home = place().home(GetParam());
    const std::string image = home + ".img";
    const std::string make = path + "truncate -s 256M " + image + " && mkfs.btrfs -q " + image +
                             " > /dev/null && mount -o loop " + image + " " + home;
    ASSERT_EQ(std::system(make.c_str()), 0);
    ::unlink(image.c_str());
    home_ = home;
    place().give(home_, GetParam());
    ASSERT_EQ(::chmod(home_.c_str(), 0700), 0);
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

}  // namespace
}  // namespace carrel::test
