#include "storage/workspaces/charge.h"

#include <gtest/gtest.h>

#include <random>

#include "storage/workspaces/restore.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

std::string noise(std::size_t bytes) {
  static std::mt19937 random(1);
  std::string text(bytes, 0);
  for (char& c : text) {
    c = static_cast<char>(random());
  }
  return text;
}

class ChargeTest : public WorkspacesTest {
 protected:
  void own(const std::string& name, const std::string& owner, const std::string& base = {}) {
    WorkspaceRow row;
    row.name = name;
    row.owner = owner;
    row.base = base;
    row.head = base;
    EXPECT_TRUE(store_->make(row).ok());
  }
  std::uint64_t layers_of(const std::string& owner) {
    return charges_of(store_->records(), owner).value().layers;
  }
  // What the host has given to all layers.
  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t blocks = 0;
    for (const auto& one : fs::recursive_directory_iterator(root_ + "/layers")) {
      struct stat info{};
      EXPECT_EQ(::lstat(one.path().c_str(), &info), 0);
      blocks += static_cast<std::uint64_t>(info.st_blocks);
    }
    return blocks * 512;
  }
  void old_schema() {
    EXPECT_TRUE(store_->records()
                    .database()
                    .execute("DROP INDEX workspace_owners; DROP TABLE layer_sizes;"
                             "ALTER TABLE workspaces DROP COLUMN owner;"
                             "ALTER TABLE workspaces DROP COLUMN for_box;"
                             "ALTER TABLE snapshots DROP COLUMN asked;")
                    .ok());
  }
};

TEST_F(ChargeTest, ALayerIsMeasuredAsItIsOnTheDisk) {
  write("large", noise(3'000'000));
  for (int i = 0; i < 200; ++i) {
    write("d/" + std::to_string(i) + "/small", "x");
    fs::create_symlink(std::string(100, 'x'), tree() + "/d/" + std::to_string(i) + "/link");
  }
  write("hole", "");
  ASSERT_EQ(::truncate((tree() + "/hole").c_str(), 16 << 20), 0);
  snapshot();
  EXPECT_EQ(layers_of(""), used());
  write("large", noise(1'000'000));
  fs::remove_all(tree() + "/d/7");
  snapshot();
  EXPECT_EQ(layers_of(""), used());
}

TEST_F(ChargeTest, EachOwnerPaysForALayerOnceAndWholly) {
  write("a", noise(100'000));
  const SnapshotRow row = snapshot();
  own("one", "alice", row.id);
  own("two", "alice", row.id);
  own("three", "bob", row.id);
  own("four", "carol");
  EXPECT_EQ(layers_of("alice"), used());
  EXPECT_EQ(layers_of("bob"), used());
  EXPECT_EQ(layers_of("carol"), 0U);
  // The snapshot goes, and what stands on it stays.
  ASSERT_TRUE(store_->records().remove_snapshot(row.id).ok());
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_EQ(layers_of(""), 0U);
  EXPECT_EQ(layers_of("alice"), used());
  for (const char* name : {"one", "two", "three"}) {
    ASSERT_TRUE(store_->remove(name).ok());
  }
  EXPECT_EQ(layers_of("alice"), 0U);
  EXPECT_EQ(used(), 0U);
}

TEST_F(ChargeTest, WhatTakesMoreThanItMayIsNoSnapshot) {
  write("a", noise(100'000));
  for (const std::uint64_t most :
       {std::uint64_t{0}, std::uint64_t{50'000}, std::uint64_t{105'000}}) {
    const auto refused =
        take_snapshot(*store_, store_->find("w").value(), {.most = most}, writers_);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResource);
    EXPECT_EQ(used(), 0U) << "nothing is left";
    EXPECT_EQ(writers_.frozen, 0);
  }
  const auto taken = take_snapshot(*store_, store_->find("w").value(), {.most = 200'000}, writers_);
  ASSERT_TRUE(taken.ok());
  EXPECT_LE(used(), 200'000U);
  // One without a change takes nothing.
  EXPECT_TRUE(take_snapshot(*store_, store_->find("w").value(), {.most = 0}, writers_).ok());
}

TEST_F(ChargeTest, ANameThatIsTakenLeavesNoLayer) {
  write("a", noise(10'000));
  snapshot("name");
  const std::uint64_t before = used();
  write("b", noise(10'000));
  const auto refused =
      take_snapshot(*store_, store_->find("w").value(), {.name = "name"}, writers_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_EQ(used(), before);
}

TEST_F(ChargeTest, ALayerOfManyIsChargedForAsIfItSharedNothing) {
  for (int i = 0; i < 60; ++i) {
    write("f" + std::to_string(i), noise(10'000));
    snapshot();
  }
  EXPECT_GE(layers_of(""), used());
}

TEST_F(ChargeTest, AnOlderHomeGetsOwnersAndSizes) {
  write("a", noise(50'000));
  snapshot();
  for (const char* name :
       {"sandbox-6fae0569-2217", "fork-0123456789abcdef", "fork-fedcba9876543210"}) {
    own(name, "");
  }
  ASSERT_TRUE(
      store_->records()
          .database()
          .execute("CREATE TABLE sandboxes (id TEXT PRIMARY KEY, spec TEXT NOT NULL);"
                   "CREATE TABLE owners (id TEXT PRIMARY KEY, owner TEXT NOT NULL);"
                   "INSERT INTO sandboxes VALUES ('6fae0569-2217-485c-ac56-154f7ba5febd', '{}'), "
                   "('b', '{\"workspace\":\"fork-0123456789abcdef\"}'), "
                   "('c', '{\"workspace\":\"w\"}');"
                   "INSERT INTO owners VALUES ('6fae0569-2217-485c-ac56-154f7ba5febd', 'alice'), "
                   "('b', 'bob'), ('c', 'carol')")
          .ok());
  old_schema();
  store_.reset();
  store_.emplace(std::move(WorkspaceStore::open(*home_).value()));
  EXPECT_EQ(layers_of(""), 0U);
  ASSERT_TRUE(measure_old_layers(*store_).ok());
  EXPECT_GE(layers_of(""), used());
  EXPECT_LE(layers_of(""), used() + 16'384);
  const auto owner = [&](const char* name) { return store_->find(name).value().owner; };
  EXPECT_EQ(owner("w"), "");
  EXPECT_EQ(owner("sandbox-6fae0569-2217"), "alice");
  EXPECT_EQ(owner("fork-0123456789abcdef"), "bob");
  EXPECT_EQ(owner("fork-fedcba9876543210"), "");
  EXPECT_EQ(store_->records().snapshots("w").value().front().asked, SnapshotRow::Asked::kYes);
}

TEST_F(ChargeTest, TheLastSnapshotOfASandboxThatIsGoneCanBeRemoved) {
  write("a", "one");
  const SnapshotRow first = snapshot();
  write("a", "two");
  const SnapshotRow second = snapshot();
  WorkspaceRecords& records = store_->records();
  ASSERT_TRUE(records.set_restoring("w", second.id).ok());
  EXPECT_EQ(records.remove_snapshot(second.id).error().code, Code::kConflict);
  ASSERT_TRUE(records.set_for_box("w", "gone").ok());
  ASSERT_TRUE(records.remove_snapshot(second.id).ok());
  EXPECT_EQ(store_->find("w").value().restoring, first.id);
  EXPECT_EQ(store_->find("w").value().head, first.id);
  ASSERT_TRUE(records.remove_snapshot(first.id).ok());
  EXPECT_EQ(store_->find("w").value().restoring, "");
  EXPECT_EQ(store_->find("w").value().head, "");
}

TEST_F(ChargeTest, WhatNobodyNamedIsLeftOverWhenItsSandboxHasEnded) {
  ASSERT_TRUE(store_->records()
                  .database()
                  .execute("CREATE TABLE sandboxes (id TEXT PRIMARY KEY, state TEXT NOT NULL);"
                           "INSERT INTO sandboxes VALUES ('lives', 'running'), ('rests', "
                           "'stopped'), ('ended', 'ended')")
                  .ok());
  own("named", "");
  for (const char* box : {"lives", "rests", "ended", "forgotten"}) {
    own(box, "");
    ASSERT_TRUE(store_->records().set_for_box(box, box).ok());
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(store_->records().left_over().value(), (Names{"ended", "forgotten"}));
  for (const auto asked : {SnapshotRow::Asked::kNo, SnapshotRow::Asked::kYes}) {
    ASSERT_TRUE(
        take_snapshot(*store_, store_->find("ended").value(), {.asked = asked}, writers_).ok());
    EXPECT_EQ(store_->records().left_over().value().size(),
              asked == SnapshotRow::Asked::kYes ? 1U : 2U);
  }
}

}  // namespace
}  // namespace carrel::storage
