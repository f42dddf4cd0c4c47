// A state directory without room, or that cannot be written: one clear line, and nothing is left.
#include <sys/mount.h>

#include "remains.h"
#include "small_disk.h"
#include "support/box.h"

namespace carrel::test {
namespace {

class Disk : public SmallDisk {};
CARREL_AS_BOTH(Disk);

TEST_P(Disk, FirstCreateOnAFullDiskFailsCleanly) {
  fill();
  Run made = carrel({"create"});
  EXPECT_EQ(made.status, 125);
  EXPECT_TRUE(says_that_it_is_full(made));
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
  empty();
  EXPECT_EQ(carrel({"create"}).status, 0);
}

TEST_P(Disk, CreateOnADiskThatBecameFullFailsCleanly) {
  Box box(GetParam());
  fill();
  Run made = carrel({"create"});
  EXPECT_EQ(made.status, 125);
  EXPECT_TRUE(says_that_it_is_full(made));
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
