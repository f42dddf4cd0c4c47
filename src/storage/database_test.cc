#include "storage/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "storage/unseen_commit_test_support.h"
#include "support/patience.h"

namespace carrel::storage {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class DatabaseTest : public ::testing::Test {
 protected:
  DatabaseTest() {
    char name[] = "/tmp/carrel-database-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~DatabaseTest() override { std::filesystem::remove_all(root_); }

  [[nodiscard]] std::string path() const { return root_ + "/state.db"; }
  [[nodiscard]] Database open(Database::Patience patience = {}) const {
    return std::move(Database::open(path(), patience).value());
  }

  std::string root_;
};

// Somebody who has begun a write and does not end it; kMany makes it look as if there were
// many of them, each with a short one.
class Writer {
 public:
  enum class Seems { kStuck, kMany };

  Writer(Database database, std::string path, Seems seems, milliseconds duration)
      : database_(std::move(database)) {
    EXPECT_TRUE(database_.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (0);").ok());
    thread_ = std::thread([this, log = path + "-wal", seems, duration] {
      const auto end = steady_clock::now() + duration;
      while (steady_clock::now() < end && !stop_) {
        if (seems == Seems::kMany) {
          EXPECT_EQ(::utimensat(AT_FDCWD, log.c_str(), nullptr, 0), 0);
        }
        ::usleep(20'000);
      }
      EXPECT_TRUE(database_.execute("COMMIT;").ok());
    });
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    stop_ = true;
    thread_.join();
  }

 private:
  Database database_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

constexpr char kTable[] = "CREATE TABLE IF NOT EXISTS t (n INTEGER) STRICT;";
constexpr char kInsert[] = "INSERT INTO t VALUES (1);";

TEST_F(DatabaseTest, ManyFirstWritersAllGetTheirTurn) {
  constexpr int kWriters = 32;
  constexpr int kWrites = 8;
  std::atomic<int> waiting = kWriters;
  std::atomic<int> failures = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&] {
      --waiting;
      while (waiting > 0) {
        std::this_thread::yield();
      }
      for (int n = 0; n < kWrites; ++n) {
        auto database = Database::open(path());
        Status done = database.ok() ? database.value().execute(kTable) : database.error();
        done = done.ok() ? database.value().execute(kInsert) : done;
        if (!done.ok()) {
          ADD_FAILURE() << done.error().to_string();
          ++failures;
        }
      }
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  EXPECT_EQ(failures, 0);
  Database database = open();
  auto count = database.prepare("SELECT count(*) FROM t");
  ASSERT_TRUE(count.ok());
  ASSERT_TRUE(count.value().step().value());
  EXPECT_EQ(count.value().number(0), kWriters * kWrites);
}

// There SQLite itself refuses at once, whatever its caller's patience.
TEST_F(DatabaseTest, TheFirstLogIsMadeAfterAWriteThatNeedsNone) {
  Database database = open();
  ASSERT_TRUE(database.execute(kTable).ok());
  ASSERT_TRUE(database.execute("PRAGMA journal_mode=DELETE;").ok());
  Writer writer(std::move(database), path(), Writer::Seems::kStuck, milliseconds(300));
  auto opened = Database::open(path());
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  EXPECT_TRUE(opened.value().execute(kInsert).ok());
}

TEST_F(DatabaseTest, AWriterWhoIsStuckIsNotWaitedForLong) {
  ASSERT_TRUE(open().execute(kTable).ok());
  Database impatient = open({milliseconds(300), milliseconds(20'000)});
  Writer writer(open(), path(), Writer::Seems::kStuck, milliseconds(20'000));
  const auto start = steady_clock::now();
  Status done = impatient.execute(kInsert);
  const auto waited = steady_clock::now() - start;
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::kTimeout);
  EXPECT_EQ(done.error().to_string(),
            "write the state database: database is locked (others are writing to it; try again in "
            "a moment)");
  EXPECT_GE(waited, milliseconds(300));
  EXPECT_LT(waited, test::patient(milliseconds(10'000)));
}

TEST_F(DatabaseTest, ManyWritersAreWaitedForLonger) {
  ASSERT_TRUE(open().execute(kTable).ok());
  Database patient = open({milliseconds(300), milliseconds(60'000)});
  Writer writer(open(), path(), Writer::Seems::kMany, milliseconds(1500));
  EXPECT_TRUE(patient.execute(kInsert).ok());
}

TEST_F(DatabaseTest, NoWaitIsEndless) {
  ASSERT_TRUE(open().execute(kTable).ok());
  Database patient = open({milliseconds(300), milliseconds(900)});
  Writer writer(open(), path(), Writer::Seems::kMany, milliseconds(20'000));
  const auto start = steady_clock::now();
  EXPECT_FALSE(patient.execute(kInsert).ok());
  EXPECT_GE(steady_clock::now() - start, milliseconds(900));
  EXPECT_LT(steady_clock::now() - start, test::patient(milliseconds(10'000)));
}

// What SQLite does with such a commit, and how to prevent it.
TEST_F(DatabaseTest, ACommitThatNobodySawComesBackUnlessItWasDropped) {
  const auto rows = [](Database& database) {
    auto count = database.prepare("SELECT count(*) FROM t");
    EXPECT_TRUE(count->step().value());
    return count->number(0);
  };
  for (const bool dropped : {false, true}) {
    {
      Database other = open();
      ASSERT_TRUE(other.execute(kTable).ok());
      ASSERT_TRUE(other.execute("DELETE FROM t").ok());
      const UnseenCommit commit(path());
      ASSERT_TRUE(open().execute(kInsert).ok());
      ASSERT_EQ(rows(other), 1);
      commit.hide();
      ASSERT_EQ(rows(other), 0);
      if (dropped) {
        ASSERT_TRUE(other.drop_unseen_commit().ok());
      }
    }
    Database next = open();
    EXPECT_EQ(rows(next), dropped ? 0 : 1);
  }
}

}  // namespace
}  // namespace carrel::storage
