#include "journal/journal.h"

#include "journal/journal_test_support.h"
#include "journal/store.h"

namespace carrel::journal {
namespace {

// One finished execution of two turns.
class RecordTest : public JournalTest {
 protected:
  void SetUp() override {
    auto run = begin({.execution = "e"});
    ASSERT_TRUE(take(*run, "one").ok());
    ASSERT_TRUE(take(*run, "two").ok());
    ASSERT_TRUE(run->finish().ok());
    ran_ = 0;
  }
  void change(const char* sql) const {
    auto database = storage::Database::open(root_ + "/journal.db");
    ASSERT_TRUE(database.value().execute(sql).ok());
  }
  // How many turns of the same run are run again.
  int rerun() {
    ran_ = 0;
    auto run = begin({.execution = "e"});
    EXPECT_TRUE(take(*run, "one").ok());
    EXPECT_TRUE(take(*run, "two").ok());
    EXPECT_TRUE(run->finish().ok());
    return ran_;
  }
  [[nodiscard]] std::size_t snapshots() const {
    return storage::WorkspaceRecords::open(*home_).value().snapshots("w").value().size();
  }
};

TEST_F(RecordTest, ADamagedRecordIsAMissWithAWarning) {
  change("UPDATE turns SET text = 'something else' WHERE position = 1");
  EXPECT_EQ(rerun(), 1) << "the first is run again, the second is still good";
  EXPECT_TRUE(was_said("is damaged, and counts as missing"));
  change("UPDATE turns SET parts = '[' WHERE position = 2");
  EXPECT_EQ(rerun(), 1);
  change("UPDATE turns SET snapshot = '' ");
  EXPECT_EQ(rerun(), 2);
}

TEST_F(RecordTest, ADatabaseThatIsCutOffOrNoneIsMovedAside) {
  const std::string file = root_ + "/journal.db";
  for (const bool cut : {true, false}) {
    journal_.reset();
    change("PRAGMA wal_checkpoint(TRUNCATE)");  // what the log has would make it whole again
    for (const char* suffix : {"-wal", "-shm"}) {
      std::filesystem::remove(file + suffix);
    }
    if (cut) {
      ASSERT_GT(std::filesystem::file_size(file), 8192U);
      std::filesystem::resize_file(file, 8192);
    } else {
      std::ofstream(file) << "this is no database, and never was one";
    }
    auto opened = Journal::open(*home_);
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    journal_ = std::make_unique<Journal>(std::move(opened.value()));
    EXPECT_EQ(rerun(), 2);
    EXPECT_TRUE(was_said("the journal was damaged"));
    said_.clear();
  }
  std::size_t aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root_)) {
    aside += entry.path().string().find("journal.db.damaged-") != std::string::npos ? 1U : 0U;
  }
  EXPECT_EQ(aside, 2U);
}

TEST_F(RecordTest, ATurnWhoseFilesAreGoneIsAMiss) {
  auto records = std::move(storage::WorkspaceRecords::open(*home_).value());
  const std::string first = journal_->find_turn("e", "1")->snapshot;
  EXPECT_EQ(records.remove_snapshot(first).error().code, Code::kConflict) << "a turn refers to it";
  EXPECT_EQ(records.remove("w").error().code, Code::kConflict);
  ASSERT_TRUE(records.let_go(first).ok());
  EXPECT_EQ(rerun(), 1);
  EXPECT_TRUE(was_said("are gone, and it counts as missing"));
}

TEST_F(RecordTest, RemovingAnExecutionLetsGoOfSnapshotsThatNothingElseNeeds) {
  ASSERT_TRUE(begin({.replay = Replay{"e"}})->repeat().ok());
  const std::string replay = journal_->executions("", 1).value()[0].id;
  const std::size_t all = snapshots();
  ASSERT_TRUE(journal_->remove("e").ok());
  EXPECT_EQ(snapshots(), all) << "the replay has them";
  EXPECT_EQ(journal_->find_turn(replay, "2")->text, "did two");
  ASSERT_TRUE(journal_->remove(replay).ok());
  EXPECT_LE(snapshots(), 1U) << "but for the one that the workspace stands at";
  EXPECT_TRUE(journal_->rows().intents().value().empty());
  EXPECT_EQ(journal_->find_execution("e").error().code, Code::kNotFound);
}

TEST_F(RecordTest, AnExecutionThatRunsIsNotRemoved) {
  auto run = begin({.execution = "r"});
  EXPECT_EQ(journal_->remove("r").error().code, Code::kConflict);
}

TEST_F(RecordTest, WhatAKilledRunLeftIsMadeGood) {
  // As if it had died between the snapshot and the record.
  write("file", "half");
  ASSERT_TRUE(journal_->rows().add_intent({"lost", "e", Intent::Kind::kKeep}).ok());
  const auto kept = files_->keep("lost");
  ASSERT_TRUE(kept.ok());
  ASSERT_TRUE(journal_->settle().ok());
  EXPECT_EQ(journal_->rows().intents().value().size(), 1U) << "the workspace stands at it";
  ASSERT_EQ(rerun(), 0);
  ASSERT_TRUE(journal_->settle().ok());
  EXPECT_TRUE(journal_->rows().intents().value().empty());
  auto records = std::move(storage::WorkspaceRecords::open(*home_).value());
  EXPECT_FALSE(records.snapshot(kept.value().snapshot).value().has_value());
}

TEST_F(RecordTest, WhatAKilledRunLeftDoesNotKeepTheWorkspaceOfARemovedExecution) {
  write("file", "half");
  ASSERT_TRUE(journal_->rows().add_intent({"lost", "e", Intent::Kind::kKeep}).ok());
  ASSERT_TRUE(files_->keep("lost").ok());
  ASSERT_TRUE(journal_->remove("e").ok());
  auto records = std::move(storage::WorkspaceRecords::open(*home_).value());
  EXPECT_TRUE(records.remove("w").ok());
}

TEST_F(RecordTest, AnIntentOfARunThatLivesIsLeftAlone) {
  auto run = begin({.execution = "alive"});
  write("file", "mine");
  ASSERT_TRUE(journal_->rows().add_intent({"mine", "alive", Intent::Kind::kKeep}).ok());
  const auto kept = files_->keep("mine");
  write("file", "next");
  ASSERT_TRUE(files_->keep("").ok());
  ASSERT_TRUE(journal_->settle().ok());
  auto records = std::move(storage::WorkspaceRecords::open(*home_).value());
  EXPECT_TRUE(records.snapshot(kept.value().snapshot).value().has_value());
}

TEST_F(RecordTest, TurnsAreFoundByNumberNameAndId) {
  const std::string id = journal_->find_turn("e", "2")->id;
  EXPECT_EQ(journal_->find_turn("e", "default_2")->id, id);
  EXPECT_EQ(journal_->find_turn("e", id.substr(0, 8))->id, id);
  for (const char* none : {"3", "default_3", "", "0"}) {
    EXPECT_EQ(journal_->find_turn("e", none).error().code, Code::kNotFound) << none;
  }
}

TEST_F(RecordTest, TheNewestTurnsComeFirst) {
  const auto turns = journal_->newest_turns(10).value();
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[0].name, "default_2");
  EXPECT_EQ(journal_->newest_turns(1).value().size(), 1U);
}

}  // namespace
}  // namespace carrel::journal
