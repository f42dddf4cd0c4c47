// Workspaces where there is no room: one clear line, nothing has changed, and it works again later.
#include <nlohmann/json.hpp>

#include "remains.h"
#include "small_disk.h"
#include "support/box.h"
#include "trees.h"

namespace carrel::test {
namespace {

using nlohmann::json;

// From nothing at all to nearly enough for what is copied.
constexpr std::size_t kRooms[] = {0, 4096, 32 << 10, 100 << 10, 250 << 10};
constexpr char kLarge[] = "head -c 300000 /dev/urandom > large; mkdir -p d; echo x > d/x";

class WorkspaceDisk : public SmallDisk {
 protected:
  void SetUp() override {
    SmallDisk::SetUp();
    if (IsSkipped()) {
      return;
    }
    const Run first = bash("echo one > a", {"--workspace", "w"});
    if (first.status != 0 && as_root()) {
      GTEST_SKIP() << "no workspace on this small file system: " << first.err;
    }
    ASSERT_EQ(first.status, 0) << first.err;
  }

  std::string says(const std::vector<std::string>& words) const {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  std::size_t snapshots() const {
    const json list =
        json::parse(carrel({"workspace", "history", "w", "--json"}).out, nullptr, false);
    return list.value("snapshots", json::array()).size();
  }
};
CARREL_AS_BOTH(WorkspaceDisk);

TEST_P(WorkspaceDisk, ASnapshotThatFindsNoRoomChangesNothing) {
  const Box box(GetParam(), {"--workspace", "w"});
  const std::string first = says({"snapshot", "w"});
  ASSERT_EQ(box.sh(kLarge).status, 0);
  const std::string before = tree_of(GetParam(), "w");
  for (const std::size_t room : kRooms) {
    fill(room);
    const Run failed = carrel({"snapshot", "w"});
    EXPECT_EQ(failed.status, 125) << room;
    EXPECT_TRUE(says_that_it_is_full(failed)) << room;
    EXPECT_EQ(box.sh("echo awake").out, "awake\n") << room;
    EXPECT_EQ(tree_of(GetParam(), "w"), before) << room;
    empty();
    EXPECT_EQ(snapshots(), 1U) << room;
    EXPECT_EQ(wrong_with_workspaces(GetParam()), "") << room;
  }
  const std::string second = says({"snapshot", "w"});
  EXPECT_EQ(says({"restore", "w", first}), first);
  EXPECT_EQ(box.sh("ls").out, "a\n");
  EXPECT_EQ(says({"restore", "w", second}), second);
  EXPECT_EQ(tree_of(GetParam(), "w"), before);
}

// What it copied so far would keep the disk full, for everybody.
TEST_P(WorkspaceDisk, ASnapshotThatFindsNoRoomGivesBackWhatItTook) {
  const Box box(GetParam(), {"--workspace", "w"});
  ASSERT_EQ(box.sh(kLarge).status, 0);
  fill(200 << 10);
  ASSERT_NE(carrel({"snapshot", "w"}).status, 0);
  EXPECT_EQ(box.sh("head -c 150000 /dev/zero > more && echo fits").out, "fits\n");
}

TEST_P(WorkspaceDisk, ARestoreThatFindsNoRoomChangesNothing) {
  const Box box(GetParam(), {"--workspace", "w"});
  ASSERT_EQ(box.sh(kLarge).status, 0);
  const std::string wanted = tree_of(GetParam(), "w");
  const std::string id = says({"snapshot", "w"});
  ASSERT_EQ(box.sh("rm -r large d; echo two > a").status, 0);
  const std::string before = tree_of(GetParam(), "w");
  for (const std::size_t room : kRooms) {
    fill(room);
    const Run failed = carrel({"restore", "w", id});
    EXPECT_EQ(failed.status, 125) << room;
    EXPECT_TRUE(says_that_it_is_full(failed)) << room;
    EXPECT_EQ(box.sh("echo awake").out, "awake\n") << room;
    EXPECT_EQ(tree_of(GetParam(), "w"), before) << room;
    empty();
    EXPECT_EQ(wrong_with_workspaces(GetParam()), "") << room;
    EXPECT_EQ(tree_of(GetParam(), "w"), before) << "and it is not begun later: " << room;
  }
  EXPECT_EQ(says({"restore", "w", id}), id);
  EXPECT_EQ(tree_of(GetParam(), "w"), wanted);
}

}  // namespace
}  // namespace carrel::test
