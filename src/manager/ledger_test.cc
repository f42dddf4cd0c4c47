#include "manager/ledger.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "storage/state.h"

namespace carrel::manager {
namespace {

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() {
    char name[] = "/tmp/carrel-ledger-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~LedgerTest() override { std::filesystem::remove_all(root_); }

  storage::Home home() { return std::move(storage::Home::open_at(root_).value()); }
  Ledger open() { return std::move(Ledger::open(home()).value()); }
  void add(const std::string& id) {
    storage::State state = std::move(storage::State::open(home()).value());
    storage::SandboxRow row;
    row.id = id;
    row.state = "creating";
    row.spec = "{}";
    row.enforcement = "[]";
    ASSERT_TRUE(state.add(row).ok());
  }

  std::string root_;
};

TEST_F(LedgerTest, OwnersAreThereForTheNextOneAndGoWithTheirSandboxes) {
  add("a");
  ASSERT_TRUE(open().note_owner("a", "ci").ok());
  ASSERT_TRUE(open().note_owner("never-made", "ci").ok());
  EXPECT_EQ(open().owners().value().at("a"), "ci");
  ASSERT_TRUE(open().forget_old(0).ok());
  EXPECT_EQ(open().owners().value().size(), 1U);
}

// J19
TEST_F(LedgerTest, OrderIsOfOneOwnerAndOneKey) {
  Ledger ledger = open();
  ASSERT_TRUE(ledger.put_order("ci", "k", {"digest", "a", false}).ok());
  EXPECT_FALSE(ledger.find_order("other", "k").value().has_value());
  EXPECT_FALSE(ledger.find_order("ci", "other").value().has_value());
  ASSERT_TRUE(ledger.put_order("ci", "k", {"digest", "a", true}).ok());
  EXPECT_TRUE(ledger.find_order("ci", "k").value()->done);
  ASSERT_TRUE(ledger.drop_order("ci", "k").ok());
  EXPECT_FALSE(ledger.find_order("ci", "k").value().has_value());
}

TEST_F(LedgerTest, OldOrdersAreForgottenAndNewOnesAreNot) {
  Ledger ledger = open();
  ASSERT_TRUE(ledger.put_order("ci", "k", {"digest", "a", true}).ok());
  ASSERT_TRUE(ledger.forget_old(storage::wall_clock_ms() - 60'000).ok());
  EXPECT_TRUE(ledger.find_order("ci", "k").value().has_value());
  ASSERT_TRUE(ledger.forget_old(storage::wall_clock_ms() + 60'000).ok());
  EXPECT_FALSE(ledger.find_order("ci", "k").value().has_value());
}

TEST_F(LedgerTest, WhatIsStoppedOrHasEndedHoldsNoPlace) {
  add("a");
  add("b");
  add("c");
  storage::State state = std::move(storage::State::open(home()).value());
  ASSERT_TRUE(state.set_stopped("b", "idle", storage::Wake::kWhenUsed).ok());
  ASSERT_TRUE(state.set_ended("c", "removed").ok());
  EXPECT_EQ(open().live_ids().value(), std::vector<std::string>{"a"});
}

TEST_F(LedgerTest, PublicPortsAreThoseThatWereSaidToBe) {
  add("a");
  Ledger ledger = open();
  ASSERT_TRUE(ledger.add_public("a", 80).ok());
  ASSERT_TRUE(ledger.add_public("a", 80).ok());
  ASSERT_TRUE(ledger.add_public("gone", 81).ok());
  EXPECT_EQ(open().public_ports().value().size(), 2U);
  ASSERT_TRUE(ledger.forget_old(0).ok());
  EXPECT_TRUE(ledger.public_ports().value().contains({"a", 80}));
  EXPECT_EQ(ledger.public_ports().value().size(), 1U);
  ASSERT_TRUE(ledger.drop_public("a", 80).ok());
  EXPECT_TRUE(ledger.public_ports().value().empty());
}

}  // namespace
}  // namespace carrel::manager
