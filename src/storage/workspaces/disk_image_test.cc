#include "storage/workspaces/disk_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "storage/workspaces/current.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSizes[] = {1U << 20, 20U << 20, 300U << 20, 1U << 30, 3ULL << 30};

class DiskImage : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/var/tmp/carrel-disk-XXXXXX";
    path_ = ::mkdtemp(name);
    directory_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { fs::remove_all(path_); }

  std::string path_;
  UniqueFd directory_;
};

TEST_F(DiskImage, HoldsWhatWasAskedForAndLittleMore) {
  for (const std::uint64_t bytes : kSizes) {
    auto top = make_disk(directory_.get(), bytes);
    if (!top.ok()) {
      GTEST_SKIP() << top.error().to_string();
    }
    struct statvfs room{};
    ASSERT_EQ(::fstatvfs(top->get(), &room), 0);
    const std::uint64_t available = room.f_bavail * room.f_frsize;
    EXPECT_GE(available, bytes);
    EXPECT_LE(available, bytes + bytes / 50 + (1U << 20));
    EXPECT_GE(room.f_bfree, room.f_bavail + 256) << "the host's own part";
    EXPECT_GE(room.f_favail, std::max<std::uint64_t>(1024, bytes / 4096));
    EXPECT_LE(room.f_favail, std::max<std::uint64_t>(1024, bytes / 4096) + 1024);
    struct stat file{};
    ASSERT_EQ(::fstatat(directory_.get(), kDiskFile, &file, 0), 0);
    EXPECT_LE(file.st_blocks * 512, 8 << 20) << "it grows with what is written";
    EXPECT_EQ(static_cast<std::uint64_t>(file.st_size - file.st_blocks * 512),
              unbacked_bytes(directory_.get()));
    EXPECT_EQ(file.st_mode & 0777, 0600U);
    top.value().reset();
    ::unlinkat(directory_.get(), kDiskFile, 0);
  }
}

TEST_F(DiskImage, WhatCannotBeMadeLeavesNothing) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{5} << 40, ~std::uint64_t{0}}) {
    auto top = make_disk(directory_.get(), bytes);
    ASSERT_FALSE(top.ok());
    EXPECT_EQ(top.error().code, Code::kUnsupported);
    EXPECT_TRUE(fs::is_empty(path_));
    EXPECT_FALSE(has_disk(directory_.get()));
  }
}

TEST_F(DiskImage, TheHostsMemoryIsNotTakenForIt) {
  const UniqueFd memory(::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto top = make_disk(memory.get(), 20U << 20);
  ASSERT_FALSE(top.ok());
  EXPECT_EQ(top.error().code, Code::kUnsupported);
}

class MadeWorkspaces : public WorkspacesTest {};

// What a removal that was interrupted has left is no part of the next one of that name.
TEST_F(MadeWorkspaces, ANewOneHasNothingOfAnOldOne) {
  fs::create_directories(root_ + "/workspaces/new/tree");
  std::ofstream(root_ + "/workspaces/new/tree/secret") << "x";
  WorkspaceRow row;
  row.name = "new";
  ASSERT_TRUE(store_->make(row).ok());
  auto tree = current_tree(*store_, row);
  ASSERT_TRUE(tree.ok());
  EXPECT_TRUE(tree->empty());
  EXPECT_EQ(store_->make(row).error().code, Code::kConflict);
}

// Whoever is killed while he makes one leaves a draft.
TEST_F(MadeWorkspaces, ADraftIsSweptAwayUnlessSomebodyHasIt) {
  const std::string draft = root_ + "/workspaces/.0123456789abcdef";
  fs::create_directories(draft);
  const UniqueFd held(::open(draft.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_TRUE(fs::exists(draft));
  ::flock(held.get(), LOCK_UN);
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_FALSE(fs::exists(draft));
}

}  // namespace
}  // namespace carrel::storage
