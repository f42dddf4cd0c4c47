#include "storage/workspaces/tree_scan.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

// Longer than clocks of file systems are coarse.
void let_time_pass() { ::usleep(40'000); }

class TreeScanTest : public ::testing::Test {
 protected:
  TreeScanTest() {
    char name[] = "/tmp/carrel-scan-XXXXXX";
    home_ = ::mkdtemp(name);
    root_ = home_ + "/tree";
    fs::create_directory(root_);
    top_ = std::move(open_at(AT_FDCWD, root_, O_RDONLY | O_DIRECTORY).value());
  }
  ~TreeScanTest() override {
    std::error_code ignored;
    fs::remove_all(home_, ignored);
  }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path, std::ios::binary) << text;
  }
  [[nodiscard]] TreeScan scan(const TreeIndex* index) const {
    return std::move(scan_tree(top_.get(), TreeForm::kPlain, {{}, index}).value());
  }
  // Everything that a scan says, in words.
  static std::vector<std::string> words(const TreeScan& scan, const TreeIndex& index) {
    const TreeIndex now = scan.make_index(index);
    std::vector<std::string> lines;
    for (std::size_t i = 1; i < now.size(); ++i) {
      const ScannedEntry entry = now.entry(i);
      lines.push_back(entry.path + " " + static_cast<char>(entry.kind) + " " +
                      std::to_string(entry.mode) + " " + std::to_string(entry.size) + " " +
                      std::to_string(entry.mtime_ns) + " " + std::to_string(entry.evidence.inode) +
                      " " + std::to_string(entry.evidence.ctime_ns) + " " + entry.target);
    }
    lines.push_back(std::to_string(scan.bytes) + " bytes");
    return lines;
  }

  std::string home_;
  std::string root_;
  UniqueFd top_;
};

TEST_F(TreeScanTest, WhatIsAsItWasIsNotDescribedAgain) {
  write("a", "1");
  write("d/e/b", "2");
  fs::create_symlink("nowhere", root_ + "/d/l");
  let_time_pass();
  const TreeIndex index = scan(nullptr).make_index({});
  write("d/e/b", "3");
  const TreeScan again = scan(&index);
  ASSERT_EQ(again.entries.size(), 1U);
  EXPECT_EQ(again.entries[0].path, "d/e/b");
}

TEST_F(TreeScanTest, WhatIsYoungIsDescribedAgain) {
  write("d/a", "1");
  const TreeIndex index = scan(nullptr).make_index({});
  const TreeScan again = scan(&index);
  ASSERT_EQ(again.entries.size(), 2U);
  EXPECT_EQ(again.entries[0].path, "d");
  EXPECT_FALSE(is_certain(index[1], again.entries[0], index.began_ns()));
}

TEST_F(TreeScanTest, WhatIsLeftOutIsCountedAgain) {
  write("d/a", "1");
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (root_ + "/d/s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  let_time_pass();
  const TreeScan first = scan(nullptr);
  const TreeIndex index = first.make_index({});
  EXPECT_EQ(first.left_out, 1U);
  EXPECT_EQ(scan(&index).left_out, 1U);
}

// Large enough to be walked by several threads.
TEST_F(TreeScanTest, AnyTreeIsSeenAsItIsWhateverWasKnown) {
  std::mt19937 random(11);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto place = [&] {
    return "d" + std::to_string(pick(20)) + "/" + std::to_string(pick(5)) + "/" +
           std::to_string(pick(30));
  };
  for (int i = 0; i < 2500; ++i) {
    write(place(), "x");
  }
  let_time_pass();
  TreeIndex index = scan(nullptr).make_index({});
  ASSERT_GT(index.size(), 1000U);
  for (int round = 0; round < 25; ++round) {
    for (int step = pick(6); step >= 0; --step) {
      const std::string path = root_ + "/" + place();
      std::error_code ignored;
      switch (pick(6)) {
        case 0:
          fs::remove_all(pick(2) == 0 ? path : fs::path(path).parent_path().string(), ignored);
          break;
        case 1:
          fs::create_symlink("x" + std::to_string(pick(3)), path, ignored);
          break;
        case 2:
          fs::create_hard_link(root_ + "/" + place(), path, ignored);
          break;
        case 3:
          fs::rename(path, root_ + "/" + place(), ignored);
          break;
        case 4:
          fs::permissions(path, static_cast<fs::perms>(0600 + pick(64)), fs::perm_options::nofollow,
                          ignored);
          break;
        default:
          fs::create_directories(fs::path(path).parent_path(), ignored);
          std::ofstream(path, std::ios::binary)
              << std::string(static_cast<std::size_t>(pick(3)), 'z');
      }
    }
    if (pick(3) > 0) {
      let_time_pass();
    }
    const TreeScan quick = scan(&index);
    const TreeScan whole = scan(nullptr);
    ASSERT_EQ(words(quick, index), words(whole, {})) << "round " << round;
    TreeIndex next = quick.make_index(index);
    index = std::move(next);
  }
}

TEST_F(TreeScanTest, IndexIsReadAsItWasWrittenOrNotAtAll) {
  write("a", "1");
  write("d/b", "2");
  let_time_pass();
  TreeIndex index = scan(nullptr).make_index({});
  index.set_snapshot("0123456789ab");
  const UniqueFd home = std::move(open_at(AT_FDCWD, home_, O_RDONLY | O_DIRECTORY).value());
  ASSERT_TRUE(draft_index(home.get(), "index", index).ok());
  EXPECT_EQ(read_index(home.get(), "index", "0123456789ab").size(), 0U);
  ASSERT_TRUE(place_index(home.get(), "index").ok());
  const TreeIndex read = read_index(home.get(), "index", "0123456789ab");
  ASSERT_EQ(read.size(), index.size());
  EXPECT_EQ(words(scan(&read), read), words(scan(nullptr), {}));
  EXPECT_EQ(read_index(home.get(), "index", "0123456789ac").size(), 0U);
  std::ifstream file(home_ + "/index", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(home_ + "/index", std::ios::binary) << damaged;
    ASSERT_EQ(read_index(home.get(), "index", "0123456789ab").size(), 0U) << at;
    std::ofstream(home_ + "/index", std::ios::binary) << bytes.substr(0, at);
    ASSERT_EQ(read_index(home.get(), "index", "0123456789ab").size(), 0U) << at;
  }
}

}  // namespace
}  // namespace carrel::storage
