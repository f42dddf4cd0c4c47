#include "egress/usage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace carrel::egress {
namespace {

class KeptUsageTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/usageXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
    directory_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  [[nodiscard]] KeptUsage open() const {
    auto usage = KeptUsage::open(directory_.get());
    EXPECT_TRUE(usage.ok());
    return std::move(usage.value());
  }

  std::string path_;
  UniqueFd directory_;
  policy::NetworkBudgets budgets_;
};

TEST_F(KeptUsageTest, WhatWasUsedByAProcessThatWasKilledIsNotGivenBack) {
  constexpr std::uint64_t kBudget = 64'000;
  budgets_.bytes_out = kBudget;
  std::uint64_t sent = 0;
  for (int lives = 0; lives < 10; ++lives) {
    KeptUsage usage = open();
    for (int i = 0; i < 5; ++i) {
      sent += usage.spend_out(1000, budgets_) ? 1000U : 0U;
    }
  }
  EXPECT_LE(sent, kBudget);
  EXPECT_GE(open().now().bytes_out, sent);
}

TEST_F(KeptUsageTest, AKillCostsABudgetASixtyFourthAtMost) {
  constexpr std::uint64_t kBudget = 64'000;
  budgets_.bytes_in = kBudget;
  {
    KeptUsage usage = open();
    EXPECT_TRUE(usage.spend_in(10'000, budgets_));
  }
  EXPECT_LE(open().now().bytes_in, 10'000 + kBudget / 64);
}

TEST_F(KeptUsageTest, WhatIsSettledIsExact) {
  KeptUsage usage = open();
  EXPECT_TRUE(usage.spend_out(10, budgets_));
  EXPECT_TRUE(usage.spend_in(20, budgets_));
  usage.count_connection();
  usage.settle();
  const Usage again = open().now();
  EXPECT_EQ(again.bytes_out, 10U);
  EXPECT_EQ(again.bytes_in, 20U);
  EXPECT_EQ(again.connections, 1U);
}

TEST_F(KeptUsageTest, ADamagedFileIsNoBudgetOfItsOwn) {
  const UniqueFd file(::openat(directory_.get(), "usage", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "many", 4), 4);
  EXPECT_FALSE(KeptUsage::open(directory_.get()).ok());
}

}  // namespace
}  // namespace carrel::egress
