#include "storage/disk_use.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

class DiskUses : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "carrel-disk-use-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
    auto home = Home::open_at(path_ + "/home");
    ASSERT_TRUE(home.ok());
    home_.emplace(std::move(home.value()));
  }
  void TearDown() override { fs::remove_all(path_); }

  void write(const std::string& name, std::size_t bytes) const {
    const fs::path file = path_ + "/home/" + name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << std::string(bytes, 'x');
  }
  [[nodiscard]] DiskUse of(KeptFor kind) const {
    auto uses = look_at_disk_use(*home_);
    EXPECT_TRUE(uses.ok());
    return uses.ok() ? uses->at(static_cast<std::size_t>(kind)) : DiskUse();
  }

  std::string path_;
  std::optional<Home> home_;
};

TEST_F(DiskUses, EachFileCountsForWhatItIsKeptFor) {
  write("images/roots/one/etc/a", 100'000);
  write("images/downloads/sha256-1", 200'000);
  write("workspaces/w/tree/f", 300'000);
  write("layers/1/tree/f", 400'000);
  write("journal.db-wal", 50'000);
  write("agents/x", 10);
  write("events.jsonl.1", 60'000);
  EXPECT_EQ(of(KeptFor::kImages).files, 1U);
  EXPECT_GE(of(KeptFor::kImages).bytes, 100'000U);
  EXPECT_LT(of(KeptFor::kImages).bytes, 160'000U);
  EXPECT_GE(of(KeptFor::kDownloads).bytes, 200'000U);
  EXPECT_GE(of(KeptFor::kWorkspaces).bytes, 300'000U);
  EXPECT_GE(of(KeptFor::kSnapshots).bytes, 400'000U);
  EXPECT_EQ(of(KeptFor::kFlows).files, 2U);
  EXPECT_GE(of(KeptFor::kLogs).bytes, 60'000U);
  EXPECT_EQ(of(KeptFor::kMachines).bytes, 0U);
  EXPECT_GT(of(KeptFor::kState).files, 0U) << "the label of the installation";
}

TEST_F(DiskUses, HolesAndSecondNamesTakeNothing) {
  write("layers/1/tree/f", 400'000);
  const std::uint64_t before = of(KeptFor::kSnapshots).bytes;
  fs::create_hard_link(path_ + "/home/layers/1/tree/f", path_ + "/home/layers/1/tree/g");
  EXPECT_EQ(of(KeptFor::kSnapshots).bytes, before);
  write("workspaces/w/disk", 0);
  ASSERT_EQ(::truncate((path_ + "/home/workspaces/w/disk").c_str(), 1L << 30), 0);
  EXPECT_LT(of(KeptFor::kWorkspaces).bytes, 100'000U);
}

TEST_F(DiskUses, OnePathIsThatAndWhatIsBelowIt) {
  write("workspaces/w/tree/f", 300'000);
  write("workspaces/v/tree/f", 900'000);
  auto use = look_at_disk_use_of(*home_, "workspaces/w");
  ASSERT_TRUE(use.ok());
  EXPECT_EQ(use->files, 1U);
  EXPECT_GE(use->bytes, 300'000U);
  EXPECT_LT(use->bytes, 400'000U);
  EXPECT_EQ(look_at_disk_use_of(*home_, "workspaces/none").value().bytes, 0U);
}

}  // namespace
}  // namespace carrel::storage
