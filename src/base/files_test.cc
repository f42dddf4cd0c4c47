#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

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

TEST_F(Files, RemovingWhatIsNotThereIsFine) {
  EXPECT_TRUE(remove_tree_at(dir_.get(), "nothing").ok());
}

TEST_F(Files, AnErrorNamesTheFileAndTheReason) {
  auto data = read_file_at(dir_.get(), "missing");
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().to_string(), "open 'missing': No such file or directory");
}

}  // namespace
}  // namespace carrel
