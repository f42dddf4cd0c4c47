#include "storage/images/tree_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

using ::testing::HasSubstr;

TEST(NormalPath, IsShortAndStaysInTheTree) {
  EXPECT_EQ(normal_path("/a//./b/").value(), "a/b");
  EXPECT_EQ(normal_path("./").value(), "");
  EXPECT_EQ(normal_path("...").value(), "...");
  for (const char* path : {"..", "../x", "a/../../x", "/../etc", "a/.."}) {
    EXPECT_THAT(normal_path(path).error().message, HasSubstr("leaves the tree")) << path;
  }
  std::string deep;
  for (std::size_t i = 0; i < kDeepestPath; ++i) {
    deep += "d/";
  }
  EXPECT_TRUE(normal_path(deep).ok());
  EXPECT_FALSE(normal_path(deep + "x").ok());
  EXPECT_FALSE(normal_path(std::string(kLongestPath + 1, 'x')).ok());
  EXPECT_FALSE(normal_path(std::string("a\0b", 3)).ok());
}

TEST(ImageMode, HasNoSetIdAndIsForEverybody) {
  EXPECT_EQ(image_mode(04755), 0755U);
  EXPECT_EQ(image_mode(06000), 0444U);
  EXPECT_EQ(image_mode(0600), 0644U);
  EXPECT_EQ(image_mode(0100), 0555U);
  EXPECT_EQ(image_mode(0777), 0755U);
}

class TreeWriterTest : public testing::Test {
 protected:
  Scratch scratch_;
  UniqueFd root_ = scratch_.directory("root");
  TreeWriter writer_{root_.get(), {.bytes = 1000, .entries = 20}};
};

TEST_F(TreeWriterTest, NoLinkIsFollowed) {
  scratch_.write("outside/secret", "old");
  ASSERT_TRUE(writer_.symbolic_link("up", "../outside").ok());
  ASSERT_TRUE(writer_.symbolic_link("file", "../outside/secret").ok());
  EXPECT_THAT(writer_.file("up/new", 0644, 0).error().message, HasSubstr("no directory"));
  EXPECT_FALSE(writer_.directory("up/new").ok());
  EXPECT_FALSE(writer_.symbolic_link("up/new", "x").ok());
  EXPECT_FALSE(writer_.remove("up/secret").ok());
  EXPECT_FALSE(writer_.hard_link("mine", "up/secret").ok());
  // What is in the way is replaced, not written through.
  EXPECT_TRUE(writer_.file("file", 0644, 0).ok());
  EXPECT_TRUE(writer_.directory("up").ok());
  EXPECT_FALSE(scratch_.exists("outside/new"));
  EXPECT_EQ(scratch_.read("outside/secret"), "old");
}

TEST_F(TreeWriterTest, DirectoryThatIsSwappedForALinkIsNoticed) {
  scratch_.directory("outside");
  ASSERT_TRUE(writer_.directory("a").ok());
  ASSERT_TRUE(writer_.file("a/first", 0644, 0).ok());
  ASSERT_TRUE(writer_.file("b/first", 0644, 0).ok());  // "a" is not the open one any more
  std::filesystem::rename(scratch_ / "root/a", scratch_ / "root/moved");
  std::filesystem::create_symlink("../outside", scratch_ / "root/a");
  EXPECT_FALSE(writer_.file("a/second", 0644, 0).ok());
  EXPECT_FALSE(scratch_.exists("outside/second"));
}

TEST_F(TreeWriterTest, HardLinksStayInTheTree) {
  scratch_.write("outside", "secret");
  ASSERT_TRUE(writer_.file("a", 0644, 0).ok());
  EXPECT_TRUE(writer_.hard_link("d/b", "a").ok());
  EXPECT_FALSE(writer_.hard_link("c", "missing").ok());
  EXPECT_FALSE(writer_.hard_link("c", "d").ok());
  ASSERT_TRUE(writer_.symbolic_link("out", "../outside").ok());
  // A link to a link is the link, not what it leads to.
  ASSERT_TRUE(writer_.hard_link("again", "out").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_ / "root/again"));
  EXPECT_EQ(std::filesystem::hard_link_count(scratch_ / "outside"), 1U);
}

TEST_F(TreeWriterTest, LimitsHold) {
  EXPECT_TRUE(writer_.file("a", 0644, 1000).ok());
  EXPECT_EQ(writer_.file("b", 0644, 1).error().code, Code::kResource);
  EXPECT_EQ(writer_.file("c", 0644, UINT64_MAX).error().code, Code::kResource);
  for (int i = 0; i < 17; ++i) {
    EXPECT_TRUE(writer_.directory("d" + std::to_string(i)).ok());
  }
  EXPECT_EQ(writer_.directory("e").error().code, Code::kResource);
}

TEST_F(TreeWriterTest, LaterEntriesReplaceEarlierOnes) {
  ASSERT_TRUE(writer_.file("x/y/z", 0644, 0).ok());
  ASSERT_TRUE(writer_.file("x/y", 0644, 0).ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(scratch_ / "root/x/y"));
  ASSERT_TRUE(writer_.directory("x/y").ok());
  ASSERT_TRUE(writer_.file("x/y/new", 0644, 0).ok());
  EXPECT_FALSE(writer_.file("", 0644, 0).ok());
  EXPECT_FALSE(writer_.remove("").ok());
}

TEST_F(TreeWriterTest, FileBelowIsOpenedWithoutFollowingLinks) {
  scratch_.write("root/dir/file", "text");
  std::filesystem::create_symlink("dir", scratch_ / "root/link");
  std::filesystem::create_symlink("/etc/passwd", scratch_ / "root/passwd");
  ::mkfifo((scratch_ / "root/pipe").c_str(), 0600);
  EXPECT_TRUE(open_file_below(root_.get(), "dir/file").ok());
  for (const char* path : {"link/file", "passwd", "pipe", "dir", "../outside", "/../x", "none"}) {
    EXPECT_FALSE(open_file_below(root_.get(), path).ok()) << path;
  }
}

}  // namespace
}  // namespace carrel::storage
