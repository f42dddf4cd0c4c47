#include "storage/workspaces/flatten.h"

#include <algorithm>
#include <random>

#include "storage/unseen_commit_test_support.h"
#include "storage/workspaces/check.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

class FlattenTest : public WorkspacesTest {
 protected:
  // The snapshot as it is stored now.
  SnapshotRow again(const std::string& id) { return store_->snapshot(id).value(); }

  void expect_whole() {
    const CheckReport report = check_workspaces(*store_).value();
    ASSERT_TRUE(report.problems.empty()) << report.problems.front();
  }
  std::size_t layers_on_disk() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(root_ + "/layers"), fs::directory_iterator()));
  }
};

TEST_F(FlattenTest, AnyNumberOfSnapshotsHasFewLayersAndLosesNothing) {
  for (int i = 0; i < 300; ++i) {
    write("base/" + std::to_string(i), "never changes");
  }
  std::vector<std::pair<std::string, std::map<std::string, std::string>>> history;
  for (int i = 0; i < 100; ++i) {
    write("d" + std::to_string(i % 7) + "/f" + std::to_string(i), std::to_string(i));
    write("same", std::to_string(i));
    if (i % 3 == 2) {
      fs::remove_all(tree() + "/d" + std::to_string(i % 5));
    }
    const SnapshotRow row = snapshot();
    ASSERT_LE(row.layers.size(), kMostLayers);
    ASSERT_EQ(again(row.id).layers.size(), row.layers.size());
    history.emplace_back(row.id, look(tree()));
  }
  EXPECT_LT(layers_on_disk(), 120U);
  expect_whole();
  for (const unsigned which : {0U, 49U, 99U}) {
    const SnapshotRow row = again(history[which].first);
    EXPECT_EQ(look(row), history[which].second);
    ASSERT_TRUE(restore_snapshot(*store_, store_->find("w").value(), row, writers_).ok());
    EXPECT_EQ(look(tree()), history[which].second);
  }
  // What one of them needs stays, whichever of the others go.
  std::mt19937 random(3);
  std::shuffle(history.begin(), history.end(), random);
  while (history.size() > 5) {
    ASSERT_TRUE(store_->records().remove_snapshot(history.back().first).ok());
    history.pop_back();
    if (history.size() % 30 == 5) {
      ASSERT_TRUE(store_->sweep().ok());
      ASSERT_EQ(look(again(history.front().first)), history.front().second);
    }
  }
  expect_whole();
  for (const auto& [id, seen] : history) {
    EXPECT_EQ(look(again(id)), seen);
  }
}

// Each of these is killed while its commit goes to the disk, and somebody sweeps before the
// database is opened anew.
TEST_F(FlattenTest, ACommitThatNobodySawNeverComesBackWithoutItsLayers) {
  std::vector<std::pair<std::string, std::map<std::string, std::string>>> history;
  for (std::size_t i = 0; i < kMostLayers + 4; ++i) {
    write("now", std::to_string(i));
    history.emplace_back(snapshot().id, look(tree()));
    write("now", "unseen");
    {
      WorkspaceStore other = std::move(WorkspaceStore::open(*home_).value());
      ASSERT_EQ(other.records().list().value().size(), 1U);
      const UnseenCommit commit(root_ + "/state.db");
      snapshot();
      store_.reset();
      commit.hide();
      ASSERT_EQ(other.records().snapshots("w").value().size(), history.size());
      ASSERT_TRUE(other.sweep().ok());
    }
    store_.emplace(std::move(WorkspaceStore::open(*home_).value()));
    ASSERT_NO_FATAL_FAILURE(expect_whole());
  }
  for (const auto& [id, seen] : history) {
    EXPECT_EQ(look(again(id)), seen);
  }
}

TEST_F(FlattenTest, ContentsAreNotCopied) {
  write("large", std::string(1 << 20, 'x'));
  const SnapshotRow first = snapshot();
  SnapshotRow row;
  for (std::size_t i = 0; i < kMostLayers; ++i) {
    write("small", std::to_string(i));
    write("other" + std::to_string(i), std::string(1 << 16, 'y'));
    row = snapshot();
  }
  ASSERT_LT(row.layers.size(), kMostLayers);
  struct stat info{};
  const std::string merged = root_ + "/layers/" + row.layers.back().id + "/tree/other7";
  ASSERT_EQ(::stat(merged.c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 2U);
}

// One after the other and merged, layers change a tree in the same way.
TEST_F(FlattenTest, MergedChangesAreTheSameAsOneAfterTheOther) {
  std::mt19937 random(5);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<std::string> names = {"a", "b", "a.x", "c"};
  for (int round = 0; round < 400; ++round) {
    // Trees that each layer leads to, as a workspace would have them.
    std::vector<Tree> moments(1);
    std::vector<std::vector<TreeEntry>> layers;
    for (int layer = 0; layer < 5; ++layer) {
      Tree next = moments.back();
      std::vector<TreeEntry> changes;
      const std::string name = names[static_cast<std::size_t>(pick(4))];
      TreeEntry entry;
      entry.path = name;
      const int what = pick(5);
      entry.kind = what == 0   ? EntryKind::kGone
                   : what == 1 ? EntryKind::kFile
                               : EntryKind::kDirectory;
      entry.opaque = what == 2;
      entry.mtime_ns = round * 10 + layer;
      changes.push_back(entry);
      if (entry.kind == EntryKind::kDirectory) {
        for (const std::string& below : names) {
          if (pick(2) == 0) {
            TreeEntry child;
            child.path = name + "/" + below;
            child.kind = pick(3) == 0 ? EntryKind::kGone : EntryKind::kFile;
            child.mtime_ns = entry.mtime_ns;
            changes.push_back(child);
          }
        }
        std::sort(changes.begin(), changes.end(), [](const TreeEntry& a, const TreeEntry& b) {
          return comes_before(a.path, b.path);
        });
      }
      apply_changes(next, changes, "");
      moments.push_back(std::move(next));
      layers.push_back(std::move(changes));
    }
    for (std::size_t from = 0; from + 1 < layers.size(); ++from) {
      Tree merged;
      for (std::size_t i = from; i < layers.size(); ++i) {
        merge_changes(merged, layers[i], "");
      }
      std::vector<TreeEntry> changes;
      for (const auto& [path, node] : merged) {
        changes.push_back(node.entry);
      }
      Tree tree = moments[from];
      apply_changes(tree, changes, "");
      ASSERT_EQ(tree.size(), moments.back().size()) << round << " from " << from;
      for (const auto& [path, node] : moments.back()) {
        ASSERT_TRUE(tree.contains(path)) << path;
        ASSERT_EQ(tree.at(path).entry.mtime_ns, node.entry.mtime_ns) << path;
      }
    }
  }
}

}  // namespace
}  // namespace carrel::storage
