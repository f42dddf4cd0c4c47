// A state directory without room, or that cannot be written: one clear line, and nothing is left.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;

// Its CARREL_HOME is a small file system of its own, in the mount namespace of this test.
class Disk : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can mount a small file system";
    }
    home_ = place().home(GetParam());
    ASSERT_EQ(::mount("small", home_.c_str(), "tmpfs", 0, "size=2m,mode=700"), 0);
    place().give(home_, GetParam());
  }
  void TearDown() override {
    if (!home_.empty()) {
      empty();
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      kill_keepers();
      EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
      EXPECT_EQ(::umount2(home_.c_str(), MNT_DETACH), 0);
    }
    CarrelTest::TearDown();
  }

  void fill() const {
    int fd = ::open((home_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    const std::string piece(4096, 'x');
    while (::write(fd, piece.data(), piece.size()) > 0) {
    }
    ::close(fd);
  }
  void empty() const { ::unlink((home_ + "/filler").c_str()); }

  std::string home_;
};
CARREL_AS_BOTH(Disk);

TEST_P(Disk, FirstCreateOnAFullDiskFailsCleanly) {
  fill();
  Run made = carrel({"create"});
  EXPECT_EQ(made.status, 125);
  EXPECT_TRUE(says_one_line(made, "")) << made.err;
  EXPECT_TRUE(made.err.find("full") != std::string::npos ||
              made.err.find("No space left") != std::string::npos)
      << made.err;
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
  empty();
  EXPECT_EQ(carrel({"create"}).status, 0);
}

TEST_P(Disk, CreateOnADiskThatBecameFullFailsCleanly) {
  Box box(GetParam());
  fill();
  Run made = carrel({"create"});
  EXPECT_EQ(made.status, 125);
  EXPECT_TRUE(made.err.find("full") != std::string::npos ||
              made.err.find("No space left") != std::string::npos)
      << made.err;
  EXPECT_TRUE(says_one_line(made, ""));
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
  EXPECT_EQ(live_boxes(GetParam()), std::set<std::string>{box.id()});
  EXPECT_EQ(box.sh("echo ok").out, "ok\n") << "the others go on";
}

TEST_P(Disk, OneShotsNeedNoRoom) {
  ASSERT_EQ(carrel({"run", "--", "true"}).status, 0);
  fill();
  EXPECT_EQ(carrel({"run", "--", "echo", "ok"}).out, "ok\n");
}

TEST_P(Disk, ASandboxEndsOnAFullDisk) {
  Box box(GetParam());
  fill();
  carrel({"rm", "--force", box.id()});
  EXPECT_TRUE(eventually(std::chrono::seconds(3), [] { return first_processes().empty(); }));
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
  empty();
  EXPECT_EQ(carrel({"ls", "--json"}).out, "{\"sandboxes\":[]}\n");
}

TEST_P(Disk, AReadOnlyStateDirectoryIsOneClearLine) {
  ASSERT_EQ(carrel({"ls"}).status, 0);
  ASSERT_EQ(::mount(nullptr, home_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, "size=2m"), 0);
  Run create = carrel({"create"});
  EXPECT_EQ(create.status, 125);
  EXPECT_TRUE(says_one_line(create, "Read-only file system"));
  // A user's one-shot without control groups writes nothing there.
  Run run = carrel({"run", "--", "true"});
  EXPECT_EQ(run.status, as_root() ? 125 : 0);
  EXPECT_TRUE(!as_root() || says_one_line(run, "Read-only file system")) << run.err;
  EXPECT_EQ(::mount(nullptr, home_.c_str(), nullptr, MS_REMOUNT, "size=2m"), 0);
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
}

class Unwritable : public CarrelTest {};
CARREL_AS_BOTH(Unwritable);

TEST_P(Unwritable, AHomeThatCannotBeMadeIsOneClearLine) {
  const Options options{.environment = {"CARREL_HOME=/proc/carrel"}};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"create"}, std::vector<std::string>{"run", "--", "true"}}) {
    Run run = carrel(words, options);
    EXPECT_EQ(run.status, 125) << words[0];
    EXPECT_TRUE(says_one_line(run, "/proc/carrel")) << words[0];
  }
  EXPECT_TRUE(first_processes().empty());
}

}  // namespace
}  // namespace carrel::test
