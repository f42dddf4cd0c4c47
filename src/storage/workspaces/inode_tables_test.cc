#include "storage/workspaces/inode_tables.h"

#include <sys/mman.h>
#include <sys/xattr.h>

#include <functional>
#include <utility>

#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/tree_scan.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

// A workspace with a file system of its own, which only root has.
class InodeTablesTest : public WorkspacesTest {
 protected:
  void SetUp() override {
    row_.name = "own";
    row_.disk_bytes = 20U << 20;
    row_ = store_->ensure(row_).value();
    if (!has_disk(store_->open_place("own").value().get())) {
      GTEST_SKIP() << "no file system of its own here";
    }
    tree_ = std::move(store_->open_tree(row_).value());
    top_ = "/proc/self/fd/" + std::to_string(tree_.get());
    fs::create_directories(top_ + "/d/empty");
    for (int i = 0; i < 40; ++i) {
      std::ofstream(top_ + "/d/f" + std::to_string(i)) << "as it was";
    }
    std::ofstream(top_ + "/file") << "as it was";
    std::ofstream(top_ + "/other") << "as it was";
    tables_ = InodeTables::open(tree_.get());
    ASSERT_TRUE(tables_.has_value());
  }

  // As the device has it now.
  [[nodiscard]] std::optional<struct stat> raw(const std::string& path) const {
    struct stat info{};
    EXPECT_EQ(::lstat((top_ + "/" + path).c_str(), &info), 0) << path;
    return InodeTables::Reader(*tables_).look(info.st_ino);
  }
  void expect_the_same(const std::string& path) const {
    struct stat info{};
    ASSERT_EQ(::lstat((top_ + "/" + path).c_str(), &info), 0) << path;
    const auto found = raw(path);
    ASSERT_TRUE(found.has_value()) << path;
    EXPECT_EQ(found->st_mode, info.st_mode) << path;
    EXPECT_EQ(found->st_nlink, info.st_nlink) << path;
    EXPECT_EQ(found->st_mtim.tv_sec, info.st_mtim.tv_sec) << path;
    EXPECT_EQ(found->st_mtim.tv_nsec, info.st_mtim.tv_nsec) << path;
    EXPECT_EQ(found->st_ctim.tv_sec, info.st_ctim.tv_sec) << path;
    EXPECT_EQ(found->st_ctim.tv_nsec, info.st_ctim.tv_nsec) << path;
    if (S_ISREG(info.st_mode)) {
      EXPECT_EQ(found->st_size, info.st_size) << path;
    }
  }
  // What a snapshot finds changed since the one before.
  std::vector<std::string> changes() {
    ::usleep(50'000);  // what is younger than a walk's clock is looked at in any case
    row_ = store_->find("own").value();
    auto taken = take_snapshot(*store_, row_, {}, writers_);
    EXPECT_TRUE(taken.ok());
    return taken->changed == 0 ? std::vector<std::string>() : changed_in(taken.value());
  }

  WorkspaceRow row_;
  UniqueFd tree_;
  std::string top_;
  std::optional<InodeTables> tables_;
};

void set_time(const std::string& path, time_t seconds, long nanoseconds) {
  const timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

TEST_F(InodeTablesTest, TheyAreWhatTheKernelSays) {
  fs::create_symlink("file", top_ + "/link");
  ASSERT_EQ(::mkfifo((top_ + "/pipe").c_str(), 0640), 0);
  fs::create_hard_link(top_ + "/other", top_ + "/d/second");
  fs::permissions(top_ + "/file", fs::perms(04711));
  fs::resize_file(top_ + "/d/f7", 5'000'000'000);
  set_time(top_ + "/d/f1", 1, 999'999'999);
  set_time(top_ + "/d/f2", -1, 5);
  set_time(top_ + "/d/f3", time_t{1} << 32, 7);
  set_time(top_ + "/d/f4", (time_t{1} << 33) + 12345, 0);
  ASSERT_EQ(::syncfs(tree_.get()), 0);  // the size of what is not written yet
  for (const char* path : {"file", "other", "link", "pipe", "d", "d/empty", "d/second", "d/f0",
                           "d/f1", "d/f2", "d/f3", "d/f4", "d/f7", "d/f39"}) {
    expect_the_same(path);
  }
}

TEST_F(InodeTablesTest, WhatIsNoInodeIsNothing) {
  InodeTables::Reader reader(*tables_);
  EXPECT_FALSE(reader.look(0).has_value());
  EXPECT_FALSE(reader.look(~std::uint64_t{0}).has_value());
  EXPECT_FALSE(reader.look(1U << 30).has_value());
  struct stat info{};
  ASSERT_EQ(::lstat((top_ + "/file").c_str(), &info), 0);
  ASSERT_TRUE(reader.look(info.st_ino).has_value());
  fs::remove(top_ + "/file");
  EXPECT_FALSE(InodeTables::Reader(*tables_).look(info.st_ino).has_value()) << "it has no name";
}

TEST_F(InodeTablesTest, OtherFileSystemsHaveNone) {
  const UniqueFd memory(::open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(InodeTables::open(memory.get()).has_value());
  const UniqueFd processes(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(InodeTables::open(processes.get()).has_value());
}

void write_through_a_mapping(const std::string& path, char what) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* at = ::mmap(nullptr, 9, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  static_cast<char*>(at)[0] = what;
  ::munmap(at, 9);
}

void write_and_hide_it(const std::string& path, const char* text) {
  struct stat before{};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  std::ofstream(path) << text;
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// Nothing is synced between a change and the snapshot, and everything else is not looked at.
TEST_F(InodeTablesTest, EveryChangeIsInTheNextSnapshot) {
  using Changed = std::vector<std::string>;
  struct Case {
    const char* what;
    std::function<void()> change;
    Changed expected;
  };
  const std::vector<Case> cases = {
      {"nothing", [] {}, {}},
      {"written", [&] { std::ofstream(top_ + "/d/f5") << "new"; }, {"f d/f5"}},
      {"with its old size and time",
       [&] { write_and_hide_it(top_ + "/d/f6", "as it is!"); },
       {"f d/f6"}},
      {"through a mapping", [&] { write_through_a_mapping(top_ + "/d/f7", 'A'); }, {"f d/f7"}},
      {"through a mapping again",
       [&] { write_through_a_mapping(top_ + "/d/f7", 'B'); },
       {"f d/f7"}},
      {"its rights", [&] { fs::permissions(top_ + "/file", fs::perms::owner_read); }, {"f file"}},
      {"an attribute",
       [&] { ASSERT_EQ(::setxattr((top_ + "/d/f8").c_str(), "user.a", "1", 1, 0), 0); },
       {"f d/f8"}},
      {"removed and made again with another number",
       [&] {
         fs::remove(top_ + "/d/f9");
         std::ofstream(top_ + "/d/f9") << "as it is!";
       },
       {"d d", "f d/f9"}},
      {"two changed places",
       [&] {
         fs::rename(top_ + "/d/f10", top_ + "/d/x");
         fs::rename(top_ + "/d/f11", top_ + "/d/f10");
         fs::rename(top_ + "/d/x", top_ + "/d/f11");
         write_and_hide_it(top_ + "/d/f10", "the 11th!");
       },
       {"d d", "f d/f10"}},
      {"a directory below one that is as it was",
       [&] { fs::create_directory(top_ + "/d/empty/e"); },
       {"d d/empty", "d d/empty/e"}},
      {"removed", [&] { fs::remove(top_ + "/other"); }, {"- other"}},
      {"nothing again", [] {}, {}},
  };
  (void)changes();
  (void)changes();  // what was young in the first walk is certain now
  for (const Case& one : cases) {
    one.change();
    EXPECT_EQ(changes(), one.expected) << one.what;
  }
}

// A file that is held open is written to for a while, and looked at all the time.
TEST_F(InodeTablesTest, TheLastOfManyWritesIsSeen) {
  (void)changes();
  const UniqueFd fd(::open((top_ + "/d/f12").c_str(), O_RDWR | O_CLOEXEC));
  auto* at =
      static_cast<char*>(::mmap(nullptr, 9, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  ASSERT_NE(at, MAP_FAILED);
  for (int i = 0; i < 40; ++i) {
    at[0] = static_cast<char>('a' + i % 26);
    if (i % 3 == 0) {
      ASSERT_EQ(::pwrite(fd.get(), "z", 1, 1 + i % 5), 1);
    }
    row_ = store_->find("own").value();
    auto taken = take_snapshot(*store_, row_, {}, writers_);
    ASSERT_TRUE(taken.ok());
    std::string now(9, '\0');
    ASSERT_EQ(::pread(fd.get(), now.data(), now.size(), 0), 9);
    const Tree kept = store_->read_tree(taken->layers).value();
    EXPECT_EQ(hash_to_hex(kept.at("d/f12").entry.hash), sha256(now)) << i;
  }
  ::munmap(at, 9);
}

}  // namespace
}  // namespace carrel::storage
