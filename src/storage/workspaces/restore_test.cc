#include "storage/workspaces/restore.h"

#include <random>

#include "storage/workspaces/compare.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

class RestoreTest : public WorkspacesTest {
 protected:
  Status restore(const SnapshotRow& row) {
    Status done = restore_snapshot(*store_, store_->find("w").value(), row, writers_);
    EXPECT_EQ(writers_.frozen, 0);
    return done;
  }
};

TEST_F(RestoreTest, BringsEverythingBack) {
  write("a", "one");
  write("d/b", "two");
  fs::create_symlink("a", tree() + "/l");
  fs::create_hard_link(tree() + "/a", tree() + "/a2");
  fs::permissions(tree() + "/d/b", fs::perms{0711});
  const auto then = look(tree());
  const SnapshotRow row = snapshot();
  fs::remove_all(tree() + "/d");
  write("d", "a file now");
  write("a", "changed");
  fs::remove(tree() + "/l");
  write("new/deep/file", "x");
  ASSERT_TRUE(restore(row).ok());
  EXPECT_EQ(look(tree()), then);
  EXPECT_EQ(fs::hard_link_count(tree() + "/a"), 2U);
  EXPECT_EQ(store_->find("w")->head, row.id);
  // And the next one knows that nothing changed.
  EXPECT_EQ(snapshot().changed, 0U);
}

TEST_F(RestoreTest, DamagedSnapshotChangesNothing) {
  write("a", "one");
  write("b", "two");
  const SnapshotRow row = snapshot();
  write("a", "three");
  write("b", "four");
  const auto now = look(tree());
  const std::string stored = root_ + "/layers/" + row.layers[0].id + "/tree/b";
  std::ofstream(stored, std::ios::trunc) << "oops";
  const Status done = restore(row);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().to_string().find("'b'"), std::string::npos) << done.error().to_string();
  EXPECT_EQ(look(tree()), now);
  EXPECT_TRUE(store_->find("w")->restoring.empty());
}

TEST_F(RestoreTest, DamagedListIsSeen) {
  write("a", "one");
  const SnapshotRow row = snapshot();
  const std::string list = root_ + "/layers/" + row.layers[0].id + "/changes";
  fs::permissions(list, fs::perms{0600});
  std::ofstream(list, std::ios::app) << "- b\n";
  EXPECT_FALSE(restore(row).ok());
}

TEST_F(RestoreTest, InterruptedRestoreIsFinished) {
  write("a", "one");
  write("b/c", "two");
  const auto then = look(tree());
  const SnapshotRow row = snapshot();
  write("a", "other");
  fs::remove_all(tree() + "/b");
  // As after a crash between the intent and the end: part of it is done.
  ASSERT_TRUE(store_->records().set_restoring("w", row.id).ok());
  write("b", "half");
  std::ofstream(root_ + "/workspaces/w/stage/0") << "left over";
  ASSERT_TRUE(finish_restore(*store_, store_->find("w").value(), writers_).ok());
  EXPECT_EQ(look(tree()), then);
  EXPECT_TRUE(store_->find("w")->restoring.empty());
}

TEST_F(RestoreTest, AnyMomentOfAHistoryComesBack) {
  std::mt19937 random(5);
  const std::vector<std::string> names = {"a", "b", "a.x", "c d"};
  std::vector<std::pair<SnapshotRow, std::map<std::string, std::string>>> history;
  for (int round = 0; round < 40; ++round) {
    for (auto step = random() % 6; step > 0; --step) {
      std::string path = tree();
      for (auto depth = random() % 3 + 1; depth > 0; --depth) {
        path += "/" + names[random() % names.size()];
      }
      std::error_code ignored;
      switch (random() % 6) {
        case 0:
          fs::remove_all(path, ignored);
          break;
        case 1:
          fs::create_symlink(names[random() % names.size()], path, ignored);
          break;
        case 2:
          fs::create_hard_link(tree() + "/a", path, ignored);
          break;
        case 3:
          fs::permissions(path, static_cast<fs::perms>(0600 + random() % 64),
                          fs::perm_options::nofollow, ignored);
          break;
        default:
          fs::create_directories(fs::path(path).parent_path(), ignored);
          std::ofstream(path, std::ios::binary) << std::string(random() % 3, 'q');
      }
    }
    if (random() % 3 == 0 && !history.empty()) {
      const auto& [row, seen] = history[random() % history.size()];
      const Status done = restore(row);
      ASSERT_TRUE(done.ok()) << done.error().to_string();
      ASSERT_EQ(look(tree()), seen) << "round " << round;
    } else {
      const SnapshotRow row = snapshot();
      history.emplace_back(row, look(tree()));
    }
  }
}

TEST_F(RestoreTest, DifferencesAreNamed) {
  write("same", "1");
  write("changed", "old");
  write("gone", "x");
  write("moved", "a longer text");
  write("kind", "file");
  write("mode", "m");
  fs::create_symlink("a", tree() + "/link");
  const SnapshotRow row = snapshot();
  write("changed", "new");
  fs::remove(tree() + "/gone");
  fs::rename(tree() + "/moved", tree() + "/there");
  fs::remove(tree() + "/kind");
  fs::create_directory(tree() + "/kind");
  fs::permissions(tree() + "/mode", fs::perms{0700});
  fs::remove(tree() + "/link");
  fs::create_symlink("b", tree() + "/link");
  write("added", "y");
  const Tree before = store_->read_tree(row.layers).value();
  const Tree after = current_tree(*store_, store_->find("w").value()).value();
  std::vector<std::string> seen;
  for (const Difference& difference : compare_trees(before, after)) {
    seen.push_back(std::to_string(static_cast<int>(difference.change)) + " " + difference.path +
                   (difference.from.empty() ? "" : " < " + difference.from));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"0 added", "1 changed", "2 gone", "1 kind", "1 link",
                                            "1 mode", "3 there < moved"}));
}

}  // namespace
}  // namespace carrel::storage
