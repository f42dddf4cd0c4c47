#include "storage/state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace carrel::storage {
namespace {

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    char name[] = "/tmp/carrel-state-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~StateTest() override { std::filesystem::remove_all(root_); }

  State open() { return std::move(State::open(Home::open_at(root_).value()).value()); }
  static SandboxRow row(const std::string& id, const std::string& name = {}) {
    SandboxRow row;
    row.id = id;
    row.name = name;
    row.state = "creating";
    row.spec = "{}";
    row.enforcement = "[]";
    row.created_ms = wall_clock_ms();
    return row;
  }

  std::string root_;
};

TEST_F(StateTest, NobodyElseCanReadIt) {
  const mode_t before = ::umask(0);
  State state = open();
  EXPECT_TRUE(state.add(row("a", "box")).ok());
  ::umask(before);
  for (const char* name : {"state.db", "state.db-wal", "state.db-shm"}) {
    struct stat info{};
    ASSERT_EQ(::stat((root_ + "/" + name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0600U) << name;
  }
}

TEST_F(StateTest, WhatWasAddedIsThereForTheNextConnection) {
  {
    State state = open();
    ASSERT_TRUE(state.add(row("a", "box")).ok());
    ASSERT_TRUE(state.set_running("a", "[1]").ok());
  }
  State state = open();
  auto found = state.find("a");
  ASSERT_TRUE(found.ok());
  ASSERT_TRUE(found.value().has_value());
  EXPECT_EQ(found.value()->name, "box");
  EXPECT_EQ(found.value()->state, "running");
  EXPECT_EQ(found.value()->enforcement, "[1]");
}

TEST_F(StateTest, ANameIsTakenUntilItsSandboxHasEnded) {
  State state = open();
  ASSERT_TRUE(state.add(row("a", "box")).ok());
  Status again = state.add(row("b", "box"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kConflict);
  EXPECT_EQ(again.error().message, "there is already a sandbox named 'box'");
  ASSERT_TRUE(state.set_ended("a", "removed").ok());
  EXPECT_TRUE(state.add(row("b", "box")).ok());
}

TEST_F(StateTest, SandboxesWithoutANameDoNotClash) {
  State state = open();
  EXPECT_TRUE(state.add(row("a")).ok());
  EXPECT_TRUE(state.add(row("b")).ok());
}

TEST_F(StateTest, TheFirstReasonStays) {
  State state = open();
  ASSERT_TRUE(state.add(row("a")).ok());
  ASSERT_TRUE(state.set_ended("a", "its lease ran out").ok());
  ASSERT_TRUE(state.set_ended("a", "something else").ok());
  EXPECT_EQ(state.find("a").value()->reason, "its lease ran out");
  EXPECT_TRUE(state.list(State::Which::kLive).value().empty());
  EXPECT_EQ(state.list(State::Which::kAll).value().size(), 1U);
}

TEST_F(StateTest, OnlyTheNewestEndedOnesAreKept) {
  State state = open();
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(state.add(row(id)).ok());
  }
  ASSERT_TRUE(state.set_ended("a", "x").ok());
  ::usleep(2000);
  ASSERT_TRUE(state.set_ended("b", "x").ok());
  ASSERT_TRUE(state.forget_old(1).ok());
  EXPECT_FALSE(state.find("a").value().has_value());
  EXPECT_TRUE(state.find("b").value().has_value());
  EXPECT_TRUE(state.find("c").value().has_value());
}

TEST_F(StateTest, ADamagedDatabaseIsAnErrorWithAHint) {
  State::open(Home::open_at(root_).value()).value();
  std::filesystem::resize_file(root_ + "/state.db", 0);
  {
    FILE* file = ::fopen((root_ + "/state.db").c_str(), "w");
    ::fputs("this is not a database, but it is long enough to be looked at as one ...........",
            file);
    ::fclose(file);
  }
  std::filesystem::remove(root_ + "/state.db-wal");
  auto state = State::open(Home::open_at(root_).value());
  ASSERT_FALSE(state.ok());
  EXPECT_NE(state.error().hint.find("damaged"), std::string::npos);
}

TEST_F(StateTest, WhatIsStoppedCanBeStartedOnce) {
  State state = open();
  ASSERT_TRUE(state.add(row("a", "box")).ok());
  ASSERT_TRUE(state.set_running("a", "[]").ok());
  EXPECT_EQ(state.start_again("a", "{}").error().code, Code::kConflict);
  ASSERT_TRUE(state.set_stopped("a", "idle", Wake::kWhenUsed).ok());
  EXPECT_EQ(state.find("a").value()->state, "stopped");
  EXPECT_EQ(state.find("a").value()->wake, Wake::kWhenUsed);
  EXPECT_EQ(state.list(State::Which::kLive).value().size(), 1U);
  EXPECT_EQ(state.add(row("b", "box")).error().code, Code::kConflict);  // it keeps its name
  ASSERT_TRUE(state.start_again("a", "{1}").ok());
  EXPECT_EQ(state.find("a").value()->state, "creating");
  EXPECT_EQ(state.find("a").value()->spec, "{1}");
  EXPECT_EQ(state.start_again("a", "{}").error().code, Code::kConflict);
  ASSERT_TRUE(state.set_ended("a", "removed").ok());
  ASSERT_TRUE(state.set_stopped("a", "late", Wake::kWhenTold).ok());
  EXPECT_EQ(state.find("a").value()->state, "ended");
}

TEST_F(StateTest, TableOfAnEarlierVersionIsBroughtUpToDate) {
  {
    Database database = std::move(Database::open(root_ + "/state.db").value());
    ASSERT_TRUE(database
                    .execute("CREATE TABLE sandboxes (id TEXT PRIMARY KEY, name TEXT, state TEXT "
                             "NOT NULL CHECK (state IN ('creating', 'running', 'ended')), spec "
                             "TEXT NOT NULL, enforcement TEXT NOT NULL DEFAULT '[]', created_ms "
                             "INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT 0, reason TEXT "
                             "NOT NULL DEFAULT '') STRICT;"
                             "CREATE UNIQUE INDEX live_names ON sandboxes (name) WHERE name IS NOT "
                             "NULL AND state <> 'ended';"
                             "INSERT INTO sandboxes VALUES ('a', 'box', 'running', '{}', '[2]', 7, "
                             "0, '')")
                    .ok());
  }
  State state = open();
  EXPECT_EQ(state.find("a").value()->enforcement, "[2]");
  EXPECT_EQ(state.find("a").value()->created_ms, 7);
  EXPECT_TRUE(state.set_stopped("a", "idle", Wake::kWhenTold).ok());
  EXPECT_EQ(state.add(row("b", "box")).error().code, Code::kConflict);
  EXPECT_EQ(open().find("a").value()->state, "stopped");
}

TEST_F(StateTest, TableWithItsStatesAsAListIsBroughtUpToDateAndLosesNothing) {
  {
    Database database = std::move(Database::open(root_ + "/state.db").value());
    ASSERT_TRUE(database
                    .execute("CREATE TABLE sandboxes (id TEXT PRIMARY KEY, name TEXT, state TEXT "
                             "NOT NULL CHECK (state IN ('creating', 'running', 'stopped', "
                             "'ended')), spec TEXT NOT NULL, enforcement TEXT NOT NULL DEFAULT "
                             "'[]', created_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL DEFAULT "
                             "0, reason TEXT NOT NULL DEFAULT '', wakes INTEGER NOT NULL DEFAULT "
                             "0) STRICT;"
                             "INSERT INTO sandboxes VALUES ('a', 'box', 'stopped', '{}', '[2]', 7, "
                             "9, 'idle', 1);"
                             "PRAGMA user_version = 1;")
                    .ok());
  }
  State state = open();
  EXPECT_EQ(state.find("a").value()->reason, "idle");
  EXPECT_EQ(state.find("a").value()->wake, Wake::kWhenUsed);
  EXPECT_EQ(state.add(row("b", "box")).error().code, Code::kConflict);
  EXPECT_TRUE(open().start_again("a", "{}").ok());
}

// A table with a state that nobody knows could not be swept.
TEST_F(StateTest, OtherStatesAreRefused) {
  State state = open();
  SandboxRow odd = row("a", "box");
  odd.state = "gone";
  EXPECT_FALSE(state.add(odd).ok());
}

}  // namespace
}  // namespace carrel::storage
