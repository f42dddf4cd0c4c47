#include "guest/file_place.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace carrel::guest {
namespace {

namespace fs = std::filesystem;

// A directory of this test's. The root is the host's: what is tested is how it is walked.
class FilePlace : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "carrel-place-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
  }
  void TearDown() override { fs::remove_all(top_); }

  [[nodiscard]] Path at(const std::string& name) const {
    Path path;
    path.add((top_ / name).string());
    return path;
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(top_ / name) << text;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(top_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path top_;
};

int absolute(const std::string& workdir, const std::string& path, std::string& out) {
  Path absolute;
  const int result = absolute_path(workdir, path, absolute);
  out = absolute.view();
  return result;
}

// R142, R143, R144
TEST(AbsolutePath, StartsAtTheWorkDirOrAtTheRoot) {
  std::string out;
  EXPECT_EQ(absolute("/workspace", "x.txt", out), 0);
  EXPECT_EQ(out, "/workspace/x.txt");
  EXPECT_EQ(absolute("/workspace", "/etc/hostname", out), 0);
  EXPECT_EQ(out, "/etc/hostname");
  EXPECT_EQ(absolute("/workspace", "a..b", out), 0);
  EXPECT_EQ(absolute("/workspace", "a/../../etc/passwd", out), -EXDEV);
  EXPECT_EQ(absolute("/workspace", std::string(4095, 'a'), out), -ENAMETOOLONG);
}

TEST_F(FilePlace, SpecialFilesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  struct stat info{};
  EXPECT_EQ(open_regular(at("pipe").c_str(), info), -ENXIO);
  EXPECT_EQ(open_regular("/dev/zero", info), -ENXIO);
  EXPECT_EQ(open_regular(top_.c_str(), info), -EISDIR);
  EXPECT_EQ(open_regular(at("none").c_str(), info), -ENOENT);
}

TEST_F(FilePlace, MagicLinksAreNotFollowed) {
  struct stat info{};
  EXPECT_EQ(open_regular("/proc/self/exe", info), -ELOOP);
  EXPECT_EQ(open_in_root("/proc/self/root/etc", O_PATH | O_DIRECTORY), -ELOOP);
  Place place;
  Path exe;
  exe.add("/proc/self/exe");
  EXPECT_EQ(find_target(exe, Parents::kLeave, place), -ELOOP);
}

TEST_F(FilePlace, ALinkAtTheEndIsFollowedWhenAskedTo) {
  fs::create_directory(top_ / "d");
  fs::create_symlink("d/file", top_ / "relative");
  fs::create_symlink(top_ / "relative", top_ / "absolute");
  fs::create_symlink("loop", top_ / "loop");
  Place place;
  ASSERT_EQ(find_target(at("absolute"), Parents::kLeave, place), 0);
  EXPECT_EQ(place.name.view(), "file");
  ASSERT_EQ(find_place(at("absolute"), Parents::kLeave, place), 0);
  EXPECT_EQ(place.name.view(), "absolute");
  EXPECT_EQ(find_target(at("loop"), Parents::kLeave, place), -ELOOP);
}

TEST_F(FilePlace, ParentsAreMadeWhenAskedTo) {
  Place place;
  EXPECT_EQ(find_place(at("a/b/c"), Parents::kLeave, place), -ENOENT);
  EXPECT_EQ(find_place(at("a/b/c"), Parents::kMake, place), 0);
  EXPECT_TRUE(fs::is_directory(top_ / "a/b"));
  EXPECT_FALSE(fs::exists(top_ / "a/b/c"));
}

TEST_F(FilePlace, ANewFileIsSeenWholeOrNotAtAll) {
  put("file", "old");
  Place place;
  ASSERT_EQ(find_place(at("file"), Parents::kLeave, place), 0);
  {
    NewFile file;
    ASSERT_EQ(file.begin(place.parent, place.name.c_str(), 0640), 0);
    ASSERT_TRUE(write_whole(file.descriptor(), "half"));
    EXPECT_EQ(text("file"), "old");
  }
  EXPECT_EQ(text("file"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(top_), {}), 1);
  NewFile file;
  ASSERT_EQ(file.begin(place.parent, place.name.c_str(), 0640), 0);
  ASSERT_TRUE(write_whole(file.descriptor(), "new"));
  EXPECT_EQ(file.commit(NewFile::Over::kNothing), -EEXIST);
  EXPECT_EQ(text("file"), "old");
  EXPECT_EQ(file.commit(NewFile::Over::kAnything), 0);
  EXPECT_EQ(text("file"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(top_), {}), 1);
}

}  // namespace
}  // namespace carrel::guest
