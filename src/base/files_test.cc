#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/tree_visit.h"

namespace carrel {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() {
    char name[] = "/tmp/carrel-files-XXXXXX";
    root_ = ::mkdtemp(name);
    dir_ = UniqueFd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~Files() override { std::filesystem::remove_all(root_); }

  std::string root_;
  UniqueFd dir_;
};

TEST_F(Files, ReplacedFileHasTheNewContentAndLeavesNoTemporary) {
  ASSERT_TRUE(replace_file_at(dir_.get(), "a", "one", 0600).ok());
  ASSERT_TRUE(replace_file_at(dir_.get(), "a", "two", 0600).ok());
  EXPECT_EQ(read_file_at(dir_.get(), "a").value(), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 1);
}

TEST_F(Files, ReadingMoreThanTheLimitIsAnError) {
  ASSERT_TRUE(replace_file_at(dir_.get(), "a", "12345", 0600).ok());
  auto data = read_file_at(dir_.get(), "a", 4);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, Code::kResource);
}

TEST_F(Files, RemovingATreeNeverFollowsALink) {
  ASSERT_TRUE(make_directories(root_ + "/canary", 0700).ok());
  ASSERT_TRUE(replace_file_at(dir_.get(), "canary/keep", "x", 0600).ok());
  ASSERT_TRUE(make_directories(root_ + "/gone/deep/deeper", 0700).ok());
  ASSERT_EQ(::symlink("../../canary", (root_ + "/gone/deep/link").c_str()), 0);
  ASSERT_TRUE(remove_tree_at(dir_.get(), "gone").ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/gone"));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/canary/keep"));
}

// Makes that many directories in each other, with a file beside each.
void nest(int dir, int depth) {
  UniqueFd here(::openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(here.get(), "d", 0700), 0);
    ASSERT_TRUE(open_at(here.get(), "f", O_WRONLY | O_CREAT, 0600).ok());
    here = UniqueFd(::openat(here.get(), "d", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
}

class FewDescriptors {
 public:
  FewDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 64;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(Files, ATreeOfAnyDepthIsRemoved) {
  const FewDescriptors few;
  nest(dir_.get(), 9000);
  const Status removed = remove_tree_at(dir_.get(), "d");
  EXPECT_TRUE(removed.ok()) << removed.error().to_string();
  EXPECT_EQ(list_directory(dir_.get()).value(), std::vector<std::string>{"f"});
}

TEST_F(Files, ADirectoryThatIsMovedAwayMeanwhileIsLeft) {
  ASSERT_TRUE(make_directories(root_ + "/top/a/b/c", 0700).ok());
  ASSERT_TRUE(make_directories(root_ + "/elsewhere", 0700).ok());
  ASSERT_TRUE(replace_file_at(dir_.get(), "elsewhere/keep", "x", 0600).ok());
  TreeVisit visit;
  std::vector<std::string> left;
  visit.meet = [&](int, const std::string& name) -> Result<bool> {
    if (name == "c") {
      std::filesystem::rename(root_ + "/top/a/b", root_ + "/elsewhere/b");
    }
    return true;
  };
  visit.leave = [&](int, const std::string& name) -> Status {
    left.push_back(name);
    return {};
  };
  const Status visited = visit_tree(dir_.get(), "top", visit);
  ASSERT_FALSE(visited.ok());
  EXPECT_EQ(visited.error().code, Code::kConflict);
  EXPECT_EQ(left, std::vector<std::string>{"c"}) << "and nothing that is beside what was moved";
}

// In a process and a mount namespace of its own. Returns 0 if what was mounted is not entered.
int go_through_while_something_is_mounted(const std::string& root) {
  const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
  const std::string group = "0 " + std::to_string(::getegid()) + " 1";
  const auto tell = [](const char* file, const std::string& text) {
    const auto opened = open_at(AT_FDCWD, file, O_WRONLY);
    return opened.ok() && write_all(opened.value().get(), text).ok();
  };
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !tell("/proc/self/setgroups", "deny") ||
      !tell("/proc/self/uid_map", user) || !tell("/proc/self/gid_map", group)) {
    return 77;
  }
  // What was opened before belongs to the mount namespace of before.
  const UniqueFd dir(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string place = root + "/top/a";
  TreeVisit visit;
  visit.meet = [&](int, const std::string& name) -> Result<bool> {
    if (name == "a" && ::mount("tmpfs", place.c_str(), "tmpfs", 0, nullptr) != 0) {
      return Error{Code::kSystem, errno, "mount", {}};
    }
    return true;
  };
  bool left = false;
  visit.leave = [&](int, const std::string& name) -> Status {
    left = left || name == "a";
    return {};
  };
  const Status visited = visit_tree(dir.get(), "top", visit);
  return !visited.ok() && visited.error().code == Code::kConflict && !left ? 0 : 1;
}

TEST_F(Files, WhatIsMountedInATreeMeanwhileIsNotGoneInto) {
  ASSERT_TRUE(make_directories(root_ + "/top/a", 0700).ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::_exit(go_through_while_something_is_mounted(root_));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "this host has no user namespaces for this user";
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Files, RemovingWhatIsNotThereIsFine) {
  EXPECT_TRUE(remove_tree_at(dir_.get(), "nothing").ok());
}

TEST_F(Files, EveryEntryIsVisitedOnceAndOnlyVisibleOnesWhereAsked) {
  std::set<std::string> made = {".hidden", "..two"};
  for (int i = 0; i < 2000; ++i) {  // more than one buffer of them
    made.insert("entry-with-a-name-of-some-length-" + std::to_string(i));
  }
  for (const std::string& name : made) {
    ASSERT_TRUE(open_at(dir_.get(), name, O_WRONLY | O_CREAT, 0600).ok());
  }
  std::multiset<std::string> seen;
  auto entries = DirectoryEntries::open_at(dir_.get(), ".");
  ASSERT_TRUE(entries.ok());
  while (const dirent* entry = entries.value().next()) {
    seen.insert(entry->d_name);
  }
  EXPECT_TRUE(entries.value().failure().ok());
  EXPECT_EQ(seen, std::multiset<std::string>(made.begin(), made.end()));

  std::size_t visible = 0;
  // A second walk through the same descriptor begins at the beginning.
  ASSERT_TRUE(each_visible_entry_at(dir_.get(), ".", [&](const dirent& entry) {
                EXPECT_NE(entry.d_name[0], '.');
                ++visible;
              }).ok());
  EXPECT_EQ(visible, made.size() - 2);
}

TEST_F(Files, AVisitMayRemoveWhatItVisits) {
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(open_at(dir_.get(), std::to_string(i), O_WRONLY | O_CREAT, 0600).ok());
  }
  int visits = 0;
  ASSERT_TRUE(each_visible_entry_at(dir_.get(), ".", [&](const dirent& entry) {
                ++visits;
                EXPECT_EQ(::unlinkat(dir_.get(), entry.d_name, 0), 0);
              }).ok());
  EXPECT_EQ(visits, 2000);
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(Files, ALinkToADirectoryAndAFileAreNotListed) {
  ASSERT_TRUE(make_directories(root_ + "/real", 0700).ok());
  ASSERT_TRUE(replace_file_at(dir_.get(), "file", "x", 0600).ok());
  ASSERT_EQ(::symlink("real", (root_ + "/link").c_str()), 0);
  auto visit = [](const dirent&) { FAIL(); };
  EXPECT_TRUE(each_visible_entry_at(dir_.get(), "real", visit).ok());
  for (const char* name : {"link", "file", "missing"}) {
    Status walked = each_visible_entry_at(dir_.get(), name, visit);
    ASSERT_FALSE(walked.ok()) << name;
    EXPECT_NE(walked.error().message.find(name), std::string::npos) << walked.error().message;
  }
}

TEST_F(Files, AFailedWalkIsNoEnd) {
  auto entries = DirectoryEntries::open_at(dir_.get(), ".");
  ASSERT_TRUE(entries.ok());
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup3(file.get(), entries.value().descriptor(), O_CLOEXEC),
            entries.value().descriptor());
  EXPECT_EQ(entries.value().next(), nullptr);
  EXPECT_EQ(entries.value().failure().error().error_number, ENOTDIR);
}

TEST_F(Files, WalksLeaveNoDescriptorBehind) {
  auto lowest_free = [] { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get(); };
  const int before = lowest_free();
  for (int i = 0; i < 8; ++i) {
    (void)each_visible_entry_at(dir_.get(), ".", [](const dirent&) {});
    (void)each_visible_entry_at(dir_.get(), "missing", [](const dirent&) {});
  }
  EXPECT_EQ(lowest_free(), before);
}

TEST_F(Files, AnErrorNamesTheFileAndTheReason) {
  auto data = read_file_at(dir_.get(), "missing");
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().to_string(), "open 'missing': No such file or directory");
}

}  // namespace
}  // namespace carrel
