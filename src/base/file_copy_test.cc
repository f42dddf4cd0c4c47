#include "base/file_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "base/open_below.h"

namespace carrel {
namespace {

class FileCopy : public ::testing::Test {
 protected:
  FileCopy() {
    char name[] = "/tmp/carrel-copy-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~FileCopy() override { std::filesystem::remove_all(root_); }
  [[nodiscard]] UniqueFd make(const std::string& name) const {
    return UniqueFd(::open((root_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  std::string root_;
};

TEST_F(FileCopy, KeepsBytesAndHoles) {
  const UniqueFd from = make("from");
  const std::string start(300'000, 'a');
  ASSERT_TRUE(write_all(from.get(), start).ok());
  ASSERT_EQ(::pwrite(from.get(), "end", 3, 1 << 20), 3);
  ASSERT_EQ(::ftruncate(from.get(), 2 << 20), 0);
  std::string whole = start;
  whole.resize(2 << 20);
  whole.replace(1 << 20, 3, "end");
  for (const bool hashed : {true, false}) {
    const UniqueFd to = make(hashed ? "hashed" : "plain");
    Sha256 hash;
    ASSERT_TRUE(copy_contents(from.get(), to.get(), 2 << 20, hashed ? &hash : nullptr, "").ok());
    EXPECT_EQ(read_file_at(AT_FDCWD, root_ + (hashed ? "/hashed" : "/plain"), 4 << 20).value(),
              whole);
    struct stat info{};
    ASSERT_EQ(::fstat(to.get(), &info), 0);
    EXPECT_LT(info.st_blocks, 2048) << "the hole takes room";
    if (hashed) {
      EXPECT_EQ(hash.finish(), sha256(whole));
    }
  }
}

TEST_F(FileCopy, FileThatShrankIsAnError) {
  const UniqueFd from = make("from");
  ASSERT_TRUE(write_all(from.get(), "four").ok());
  Sha256 hash;
  EXPECT_EQ(copy_contents(from.get(), make("to").get(), 5, &hash, "").error().code,
            Code::kConflict);
  EXPECT_TRUE(copy_contents(from.get(), make("less").get(), 3, &hash, "").ok());
  EXPECT_EQ(read_file_at(AT_FDCWD, root_ + "/less").value(), "fou");
}

TEST_F(FileCopy, OpensNothingThroughLinks) {
  std::filesystem::create_directories(root_ + "/d/e");
  std::filesystem::create_directory_symlink("d", root_ + "/l");
  (void)make("d/e/f");
  (void)make("d/s");
  std::filesystem::create_symlink("s", root_ + "/d/t");
  const UniqueFd top(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(open_below(top.get(), "", O_RDONLY | O_DIRECTORY).ok());
  EXPECT_TRUE(open_below(top.get(), "d/e/f", O_RDONLY).ok());
  for (const char* path : {"l/e/f", "d/t", "d/../../x", "..", "/", "d/missing"}) {
    EXPECT_FALSE(open_below(top.get(), path, O_RDONLY).ok()) << path;
  }
  const UniqueFd system(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(open_below(system.get(), "proc/self/status", O_RDONLY).error().error_number, EXDEV);
}

}  // namespace
}  // namespace carrel
