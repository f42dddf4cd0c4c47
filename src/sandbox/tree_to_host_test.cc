#include "sandbox/tree_to_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "sandbox/tree_test_support.h"

namespace carrel::sandbox {
namespace {

namespace fs = std::filesystem;
using protocol::FileEntry;
using protocol::FileKind;

FileEntry entry(FileKind kind, std::string_view path, std::uint64_t size = 0,
                std::string_view target = {}) {
  FileEntry made;
  made.kind = kind;
  made.mode = 07755 & 0xfff;
  made.path = path;
  made.size = size;
  made.target = target;
  return made;
}

class TreeToHostTest : public testing::Test {
 protected:
  ScratchTree scratch_;
};

// R141
TEST_F(TreeToHostTest, AFileGoesToAFileOrIntoADirectory) {
  fs::create_directory(scratch_ / "dir");
  for (const std::string to : {"new", "dir"}) {
    TreeToHost sink(scratch_ / to, "name", {});
    ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "", 4)).ok());
    ASSERT_TRUE(sink.contents("text").ok());
    ASSERT_TRUE(sink.finish().ok());
  }
  EXPECT_EQ(scratch_.text("new"), "text");
  EXPECT_EQ(scratch_.text("dir/name"), "text");
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U);  // no set-id
}

TEST_F(TreeToHostTest, ADirectoryDoesNotReplaceAFileNorAFileADirectory) {
  scratch_.put("file", "old");
  scratch_.put("dir/name/kept", "old");
  {
    TreeToHost sink(scratch_ / "file", "name", {});
    Status status = sink.entry(entry(FileKind::kDirectory, ""));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kConflict);
  }
  {
    TreeToHost sink(scratch_ / "dir", "name", {});
    EXPECT_FALSE(sink.entry(entry(FileKind::kFile, "", 4)).ok());
  }
  {
    TreeToHost sink(scratch_ / "dir", "", {});
    ASSERT_TRUE(sink.entry(entry(FileKind::kDirectory, "")).ok());
    EXPECT_FALSE(sink.entry(entry(FileKind::kFile, "name", 4)).ok());
    EXPECT_FALSE(sink.entry(entry(FileKind::kLink, "name", 0, "/tmp")).ok());
  }
  EXPECT_EQ(scratch_.text("file"), "old");
  EXPECT_EQ(scratch_.text("dir/name/kept"), "old");
}

// R148: link, then a file through it.
TEST_F(TreeToHostTest, NothingIsWrittenThroughALink) {
  fs::create_directory(scratch_ / "outside");
  fs::create_directory(scratch_ / "to");
  TreeToHost sink(scratch_ / "to", "", {});
  ASSERT_TRUE(sink.entry(entry(FileKind::kDirectory, "")).ok());
  ASSERT_TRUE(sink.entry(entry(FileKind::kLink, "l", 0, scratch_ / "outside")).ok());
  EXPECT_FALSE(sink.entry(entry(FileKind::kFile, "l/x", 4)).ok());
  EXPECT_TRUE(fs::is_empty(scratch_ / "outside"));
  EXPECT_TRUE(fs::is_symlink(scratch_ / "to/l"));
}

TEST_F(TreeToHostTest, ALinkOfTheHostIsReplacedAndNotFollowed) {
  scratch_.put("outside", "old");
  fs::create_directory(scratch_ / "to");
  fs::create_symlink("../outside", scratch_ / "to/name");
  TreeToHost sink(scratch_ / "to/name", "", {});
  ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "", 3)).ok());
  ASSERT_TRUE(sink.contents("new").ok());
  ASSERT_TRUE(sink.finish().ok());
  EXPECT_EQ(scratch_.text("outside"), "old");
  EXPECT_EQ(scratch_.text("to/name"), "new");
}

TEST_F(TreeToHostTest, WithoutItsEndNothingNewIsLeft) {
  scratch_.put("old", "old");
  for (const FileKind kind : {FileKind::kFile, FileKind::kDirectory}) {
    TreeToHost sink(scratch_ / "new", "name", {});
    ASSERT_TRUE(sink.entry(entry(kind, "", 4)).ok());
    if (kind == FileKind::kFile) {
      ASSERT_TRUE(sink.contents("te").ok());
    } else {
      ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "a/b", 4)).ok());
    }
    EXPECT_FALSE(fs::exists(scratch_ / "new"));
  }
  TreeToHost replaced(scratch_ / "old", "name", {});
  ASSERT_TRUE(replaced.entry(entry(FileKind::kFile, "", 4)).ok());
  EXPECT_EQ(scratch_.text("old"), "old");
  EXPECT_EQ(scratch_.count(), 2U);
}

TEST_F(TreeToHostTest, HolesStayHoles) {
  constexpr std::uint64_t kSize = 1ULL << 40;
  TreeToHost sink(scratch_ / "sparse", "name", {});
  ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "", kSize)).ok());
  ASSERT_TRUE(sink.contents("begin").ok());
  ASSERT_TRUE(sink.hole(kSize - 5).ok());
  ASSERT_TRUE(sink.finish().ok());
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / "sparse").c_str(), &info), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), kSize);
  EXPECT_LT(info.st_blocks, 1000);
}

// From a kernel that does not tell of them.
TEST_F(TreeToHostTest, ZerosTakeNoRoom) {
  constexpr std::size_t kPiece = 64U << 10;
  constexpr std::uint64_t kPieces = 64;
  const std::string zeros(kPiece, '\0');
  TreeToHost sink(scratch_ / "zeros", "name", {});
  ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "", kPieces * kPiece + 3)).ok());
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    ASSERT_TRUE(sink.contents(i == 7 ? "x" + zeros.substr(1) : zeros).ok());
  }
  ASSERT_TRUE(sink.contents(zeros.substr(0, 3)).ok());
  ASSERT_TRUE(sink.finish().ok());
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / "zeros").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks, 1000);
  std::string wanted(kPieces * kPiece + 3, '\0');
  wanted[7 * kPiece] = 'x';
  EXPECT_EQ(scratch_.text("zeros"), wanted);
}

TEST_F(TreeToHostTest, OneFileIsAllThatComesAfterAFile) {
  TreeToHost sink(scratch_ / "new", "name", {});
  ASSERT_TRUE(sink.entry(entry(FileKind::kFile, "", 0)).ok());
  EXPECT_FALSE(sink.entry(entry(FileKind::kFile, "more", 0)).ok());
  TreeToHost other(scratch_ / "other", "name", {});
  EXPECT_FALSE(other.entry(entry(FileKind::kFile, "no top", 0)).ok());
}

// R140
TEST_F(TreeToHostTest, ATreeOfTheHostIsToldWithModesLinksAndEmptyDirectories) {
  scratch_.put("from/a b", "text");
  fs::create_directory(scratch_ / "from/empty");
  fs::create_symlink("/etc/passwd", scratch_ / "from/link");
  ASSERT_EQ(::mkfifo((scratch_ / "from/pipe").c_str(), 0600), 0);
  ASSERT_EQ(::chmod((scratch_ / "from/a b").c_str(), 0640), 0);
  UniqueFd from(::open((scratch_ / "from").c_str(), O_RDONLY | O_DIRECTORY));
  std::vector<LeftOutFile> left_out;
  const Progress quiet;
  Status status;
  const std::string told = told_by(
      [&](TreeFeed& feed) { return feed_host_tree(from.get(), feed, left_out, quiet); }, status);
  EXPECT_TRUE(status.ok());
  EXPECT_NE(told.find("file:a b 640'text'"), std::string::npos) << told;
  EXPECT_NE(told.find("dir:empty 755;end:empty 755"), std::string::npos) << told;
  EXPECT_NE(told.find("link:link 777 -> /etc/passwd"), std::string::npos) << told;
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_EQ(left_out[0].path, "pipe");
  EXPECT_TRUE(left_out[0].special);
}

}  // namespace
}  // namespace carrel::sandbox
