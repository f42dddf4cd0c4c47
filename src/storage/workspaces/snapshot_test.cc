#include "storage/workspaces/snapshot.h"

#include <sys/mman.h>

#include <random>

#include "storage/workspaces/workspaces_test_support.h"
#include "support/patience.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;
using SnapshotTest = WorkspacesTest;
using Lines = std::vector<std::string>;

TEST_F(SnapshotTest, FirstOneHasEverything) {
  write("a", "one");
  write("d/b", "two");
  fs::create_symlink("/etc/shadow", tree() + "/l");
  fs::create_directory(tree() + "/empty");
  ASSERT_EQ(::mkfifo((tree() + "/pipe").c_str(), 0600), 0);
  const SnapshotRow row = snapshot("first");
  EXPECT_EQ(changed_in(row), (Lines{"f a", "d d", "f d/b", "d empty", "l l", "p pipe"}));
  EXPECT_EQ(row.name, "first");
  EXPECT_EQ(look(row), look(tree()));
}

TEST_F(SnapshotTest, WhoRunsInOneIsKnownAtOnce) {
  const WorkspaceRow row = store_->find("w").value();
  EXPECT_FALSE(store_->is_used(row));
  for (const auto sharing : {WorkspaceStore::Sharing::kAlone, WorkspaceStore::Sharing::kShared}) {
    const auto used = store_->use(row, sharing);
    ASSERT_TRUE(used.ok());
    const std::int64_t before = wall_clock_ms();
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(store_->is_used(row));
    }
    EXPECT_LT(wall_clock_ms() - before, test::patient(std::chrono::seconds(1)).count());
  }
  EXPECT_FALSE(store_->is_used(row)) << "asking leaves no mark";
}

TEST_F(SnapshotTest, WhoHasAWorkspaceFindsNoSnapshotOfAnother) {
  write("a", "one");
  const SnapshotRow own = snapshot("first");
  for (const char* name : {"other", "fork"}) {
    WorkspaceRow row;
    row.name = name;
    row.base = row.name == "fork" ? own.id : "";
    ASSERT_TRUE(store_->make(row).ok());
  }
  const WorkspaceRow w = store_->find("w").value();
  const WorkspaceRow other = store_->find("other").value();
  const WorkspaceRow fork = store_->find("fork").value();
  for (const std::string& named : {own.id, own.id.substr(0, 8), std::string("first")}) {
    EXPECT_EQ(store_->find_snapshot(w, named).value().id, own.id);
    EXPECT_EQ(store_->find_snapshot_anywhere(named).value().id, own.id);
    const auto none = store_->find_snapshot(other, named);
    ASSERT_FALSE(none.ok()) << named;
    EXPECT_EQ(none.error().code, Code::kNotFound);
    EXPECT_EQ(none.error().message, "Snapshot " + named + " not found");
    // What a fork was made of is its own; its name there is not.
    EXPECT_EQ(store_->find_snapshot(fork, named).ok(), named != "first") << named;
  }
  EXPECT_FALSE(store_->find_snapshot(w, "").ok());
  EXPECT_EQ(store_->snapshot(own.id).value().name, "first");
  EXPECT_FALSE(store_->snapshot(own.id.substr(0, 8)).ok()) << "the whole id, and no less";
}

TEST_F(SnapshotTest, NextOneHasOnlyWhatChanged) {
  write("a", "one");
  write("b", "two");
  write("d/c", "three");
  snapshot();
  write("b", "2");
  fs::remove_all(tree() + "/d");
  const SnapshotRow row = snapshot();
  EXPECT_EQ(changed_in(row), (Lines{"f b", "- d"}));
  EXPECT_EQ(row.bytes, 1U);
  EXPECT_EQ(look(row), look(tree()));
}

TEST_F(SnapshotTest, WithoutAChangeThereIsNoLayer) {
  write("a", "one");
  const SnapshotRow first = snapshot();
  const SnapshotRow second = snapshot();
  ASSERT_EQ(second.layers.size(), 1U);
  EXPECT_EQ(second.layers[0].id, first.layers[0].id);
  EXPECT_EQ(second.changed, 0U);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/layers"), {}), 1);
}

TEST_F(SnapshotTest, LastOneDoesIfNothingChangedAndThatIsEnough) {
  const auto last = [&] {
    return take_snapshot(*store_, store_->find("w").value(), {.unchanged = Unchanged::kLastOne},
                         writers_)
        .value();
  };
  const SnapshotRow first = last();
  write("a", "one");
  const SnapshotRow second = last();
  EXPECT_NE(second.id, first.id);
  EXPECT_EQ(look(second), look(tree()));
  EXPECT_EQ(last().id, second.id);
  ::usleep(40'000);
  EXPECT_EQ(last().id, second.id);
  write("a", "two");
  const SnapshotRow third = last();
  EXPECT_NE(third.id, second.id);
  EXPECT_EQ(look(third), look(tree()));
  EXPECT_EQ(snapshot().layers.size(), third.layers.size());
}

TEST_F(SnapshotTest, OneKindCanReplaceAnother) {
  write("a/x/y", "1");
  write("b", "2");
  fs::create_symlink("b", tree() + "/c");
  snapshot();
  fs::remove_all(tree() + "/a");
  write("a", "now a file");
  fs::remove(tree() + "/b");
  write("b/in", "now a directory");
  fs::remove(tree() + "/c");
  write("c", "now a file");
  const SnapshotRow row = snapshot();
  EXPECT_EQ(changed_in(row), (Lines{"f a", "d b", "f b/in", "f c"}));
  EXPECT_EQ(look(row), look(tree()));
}

TEST_F(SnapshotTest, NamesOfOneFileStayTogether) {
  write("a", "text");
  fs::create_hard_link(tree() + "/a", tree() + "/b");
  SnapshotRow row = snapshot();
  Tree stored = store_->read_tree(row.layers).value();
  EXPECT_EQ(stored.at("b").entry.target, "a");
  EXPECT_EQ(row.bytes, 4U);
  fs::create_hard_link(tree() + "/a", tree() + "/c");
  row = snapshot();
  stored = store_->read_tree(row.layers).value();
  EXPECT_EQ(stored.at("c").entry.target, "a");
  EXPECT_EQ(look(row), look(tree()));
  fs::remove(tree() + "/a");
  row = snapshot();
  stored = store_->read_tree(row.layers).value();
  EXPECT_EQ(stored.at("b").entry.target, "");
  EXPECT_EQ(stored.at("c").entry.target, "b");
  EXPECT_EQ(look(row), look(tree()));
}

TEST_F(SnapshotTest, ChangeOfTheSameSizeAtOnceIsSeen) {
  for (int round = 0; round < 20; ++round) {
    write("a", "x" + std::to_string(round % 10));
    EXPECT_EQ(look(snapshot()), look(tree())) << round;
  }
}

TEST_F(SnapshotTest, SecondWriteThroughAMappingIsSeen) {
  write("m", std::string(8192, 'a'));
  const UniqueFd file(::open((tree() + "/m").c_str(), O_RDWR | O_CLOEXEC));
  void* mapped = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  char* bytes = static_cast<char*>(mapped);
  snapshot();
  for (int round = 0; round < 5; ++round) {
    bytes[0] = static_cast<char>('b' + round);
    ::usleep(60'000);
    snapshot();
    // Long after the walk: without the write-back this page would change no time.
    ::usleep(60'000);
    bytes[4096] = static_cast<char>('b' + round);
    bytes[0] = static_cast<char>('B' + round);
    ::usleep(60'000);
    EXPECT_EQ(look(snapshot()), look(tree())) << round;
  }
  ::munmap(mapped, 8192);
}

TEST_F(SnapshotTest, WriterWithAnOpenDescriptorIsSeen) {
  const UniqueFd file(::open((tree() + "/log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(::write(file.get(), "line\n", 5), 5);
    EXPECT_EQ(look(snapshot()), look(tree()));
  }
}

TEST_F(SnapshotTest, LostIndexCostsNothingButTime) {
  write("a", "one");
  write("b", "two");
  snapshot();
  for (const char* damage : {"", "carrel-index 1\nxxxxxxxxxxxxxxxx"}) {
    std::ofstream(root_ + "/workspaces/w/index", std::ios::trunc) << damage;
    write("b", std::string("new ") + damage);
    const SnapshotRow row = snapshot();
    EXPECT_EQ(changed_in(row), (Lines{"f b"}));
    EXPECT_EQ(look(row), look(tree()));
  }
}

TEST_F(SnapshotTest, RemovedHeadLeavesTheOthersWhole) {
  write("a", "one");
  const SnapshotRow first = snapshot();
  write("a", "two");
  const SnapshotRow second = snapshot();
  ASSERT_TRUE(store_->records().remove_snapshot(second.id).ok());
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_FALSE(fs::exists(root_ + "/layers/" + second.layers.back().id));
  const SnapshotRow third = snapshot();
  EXPECT_EQ(changed_in(third), (Lines{"f a"}));
  EXPECT_EQ(look(third), look(tree()));
  ASSERT_TRUE(store_->records().remove_snapshot(first.id).ok());
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_EQ(look(third), look(tree()));
}

TEST_F(SnapshotTest, LeftoversAreSweptAndWorkIsNot) {
  write("a", "one");
  const SnapshotRow row = snapshot();
  auto working = store_->make_layer();
  ASSERT_TRUE(working.ok());
  fs::create_directory(root_ + "/layers/abandoned");
  fs::create_directory(root_ + "/workspaces/abandoned");
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_FALSE(fs::exists(root_ + "/layers/abandoned"));
  EXPECT_FALSE(fs::exists(root_ + "/workspaces/abandoned"));
  EXPECT_TRUE(fs::exists(root_ + "/layers/" + working->id));
  EXPECT_TRUE(fs::exists(root_ + "/layers/" + row.layers[0].id));
}

TEST_F(SnapshotTest, AnyHistoryIsToldAsItWas) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const Lines names = {"a", "b", "a.x", "c d", "e\n", "\xff"};
  std::vector<std::pair<SnapshotRow, std::map<std::string, std::string>>> history;
  for (int round = 0; round < 60; ++round) {
    for (int step = pick(8); step >= 0; --step) {
      std::string path = tree();
      for (int depth = pick(3); depth >= 0; --depth) {
        path += "/" + names[static_cast<std::size_t>(pick(static_cast<int>(names.size())))];
      }
      std::error_code ignored;
      switch (pick(7)) {
        case 0:
          fs::remove_all(path, ignored);
          break;
        case 1:
          fs::create_directories(path, ignored);
          break;
        case 2:
          fs::create_symlink("x" + std::to_string(pick(3)), path, ignored);
          break;
        case 3:
          fs::permissions(path, static_cast<fs::perms>(0600 + pick(64)), fs::perm_options::nofollow,
                          ignored);
          break;
        case 4:
          fs::create_hard_link(tree() + "/a", path, ignored);
          break;
        default:
          fs::create_directories(fs::path(path).parent_path(), ignored);
          std::ofstream(path, std::ios::binary)
              << std::string(static_cast<std::size_t>(pick(3)), 'z');
      }
    }
    if (pick(12) == 0) {
      fs::remove(root_ + "/workspaces/w/index");
    }
    const SnapshotRow row = snapshot();
    history.emplace_back(row, look(tree()));
    ASSERT_EQ(look(row), history.back().second) << "round " << round;
  }
  std::shuffle(history.begin(), history.end(), random);
  while (!history.empty()) {
    ASSERT_TRUE(store_->records().remove_snapshot(history.back().first.id).ok());
    history.pop_back();
    ASSERT_TRUE(store_->sweep().ok());
    if (!history.empty()) {
      const auto& [row, seen] = history[random() % history.size()];
      ASSERT_EQ(look(row), seen);
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/layers"), {}), 0);
}

}  // namespace
}  // namespace carrel::storage
