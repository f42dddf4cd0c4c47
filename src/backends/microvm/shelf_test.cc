#include "backends/microvm/shelf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace carrel::microvm {
namespace {

// Reads the device as a kernel would.
class Reader {
 public:
  explicit Reader(Shelf& shelf) : shelf_(shelf) {}

  std::string bytes(std::uint64_t at, std::size_t size) {
    const std::uint64_t first = at / Shelf::kBlock * Shelf::kBlock;
    std::vector<char> blocks((at + size - first + Shelf::kBlock - 1) / Shelf::kBlock *
                             Shelf::kBlock);
    EXPECT_TRUE(shelf_.read(first, blocks));
    return {blocks.data() + (at - first), size};
  }
  std::uint64_t number(std::uint64_t at, std::size_t size) {
    const std::string text = bytes(at, size);
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(text[i]);
    }
    return value;
  }

  struct Inode {
    unsigned mode = 0;
    std::uint64_t size = 0;
    std::uint64_t data = 0;
  };
  Inode inode(std::uint64_t nid) {
    const std::uint64_t at = nid * 32;
    EXPECT_EQ(number(at, 2), 1U);
    return {static_cast<unsigned>(number(at + 4, 2)), number(at + 8, 8),
            number(at + 16, 4) * Shelf::kBlock};
  }
  std::uint64_t root() { return number(1024 + 14, 2); }

  // The names of a folder in their order, with their numbers.
  std::vector<std::pair<std::string, std::uint64_t>> list(std::uint64_t nid) {
    const Inode folder = inode(nid);
    std::vector<std::pair<std::string, std::uint64_t>> names;
    for (std::uint64_t block = 0; block * Shelf::kBlock < folder.size; ++block) {
      const std::uint64_t at = folder.data + block * Shelf::kBlock;
      const std::uint64_t end = std::min(Shelf::kBlock, folder.size - block * Shelf::kBlock);
      const std::uint64_t count = number(at + 8, 2) / 12;
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t start = number(at + i * 12 + 8, 2);
        const std::uint64_t stop = i + 1 < count ? number(at + (i + 1) * 12 + 8, 2) : end;
        std::string name = bytes(at + start, stop - start);
        name = name.c_str();  // the last one of a block may be followed by zeros
        names.emplace_back(std::move(name), number(at + i * 12, 8));
      }
    }
    return names;
  }

  std::optional<std::uint64_t> find(const std::string& path) {
    std::uint64_t at = root();
    for (std::size_t start = 1; start < path.size();) {
      const std::size_t end = std::min(path.find('/', start), path.size());
      const std::string name = path.substr(start, end - start);
      bool found = false;
      for (const auto& [entry, nid] : list(at)) {
        if (entry == name) {
          at = nid;
          found = true;
          break;
        }
      }
      if (!found) {
        return std::nullopt;
      }
      start = end + 1;
    }
    return at;
  }

  std::string content(const std::string& path) {
    const auto nid = find(path);
    if (!nid.has_value()) {
      return "(missing)";
    }
    const Inode file = inode(*nid);
    return file.size == 0 ? "" : bytes(file.data, file.size);
  }

 private:
  Shelf& shelf_;
};

class ShelfTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/shelf.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    ::mkdir((top_ + "/lib").c_str(), 0755);
    write("lib/small", "small\n");
    write("lib/large", std::string(1'000'001, 'l') + "end");
    write("lib/empty", "");
    ASSERT_EQ(::symlink("small", (top_ + "/lib/link").c_str()), 0);
  }
  void TearDown() override {
    const std::string command = "rm -rf " + top_;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ + "/" + name) << text;
  }
  UniqueFd folder() const {
    return UniqueFd(::open(top_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  std::string top_;
};

TEST_F(ShelfTest, ShowsAFolderAtItsPath) {
  Shelf shelf;
  ASSERT_TRUE(shelf.show("/usr", folder()).ok());
  ASSERT_TRUE(shelf.make_folder("/dev").ok());
  Reader reader(shelf);
  EXPECT_EQ(reader.number(1024, 4), 0xE0F5E1E2U);
  EXPECT_EQ(reader.content("/usr/lib/small"), "small\n");
  EXPECT_EQ(reader.content("/usr/lib/large"), std::string(1'000'001, 'l') + "end");
  EXPECT_EQ(reader.content("/usr/lib/empty"), "");
  EXPECT_EQ(reader.content("/usr/lib/link"), "small");
  EXPECT_EQ(reader.content("/usr/lib/other"), "(missing)");
  const auto dev = reader.find("/dev");
  ASSERT_TRUE(dev.has_value());
  EXPECT_EQ(reader.list(*dev).size(), 2U);
  EXPECT_TRUE(S_ISDIR(reader.inode(*dev).mode));
  EXPECT_TRUE(S_ISLNK(reader.inode(*reader.find("/usr/lib/link")).mode));
}

TEST_F(ShelfTest, ALargeFolderIsInOrderAndWhole) {
  for (int i = 0; i < 700; ++i) {
    write("lib/" + std::string(40, 'n') + std::to_string(i), std::to_string(i));
  }
  Shelf shelf;
  ASSERT_TRUE(shelf.show("/a/b", folder()).ok());
  Reader reader(shelf);
  const auto names = reader.list(*reader.find("/a/b/lib"));
  EXPECT_EQ(names.size(), 700U + 4 + 2);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; }));
  EXPECT_EQ(reader.content("/a/b/lib/" + std::string(40, 'n') + "699"), "699");
}

TEST_F(ShelfTest, AFileIsShownByItself) {
  Shelf shelf;
  ASSERT_TRUE(
      shelf.show("/etc/one", UniqueFd(::open((top_ + "/lib/small").c_str(), O_RDONLY | O_CLOEXEC)))
          .ok());
  Reader reader(shelf);
  EXPECT_EQ(reader.content("/etc/one"), "small\n");
  EXPECT_EQ(reader.list(*reader.find("/etc")).size(), 3U);
}

// What a link leads to is the reader's business: here nothing is followed.
TEST_F(ShelfTest, NoLinkIsFollowedOnTheHost) {
  ASSERT_EQ(::symlink("/etc", (top_ + "/lib/away").c_str()), 0);
  Shelf shelf;
  ASSERT_TRUE(shelf.show("/usr", folder()).ok());
  Reader reader(shelf);
  EXPECT_EQ(reader.content("/usr/lib/away"), "/etc");
  // A folder that became a link meanwhile is read no more.
  ::mkdir((top_ + "/lib/dir").c_str(), 0755);
  write("lib/dir/inside", "inside");
  Shelf other;
  ASSERT_TRUE(other.show("/usr", folder()).ok());
  Reader again(other);
  const auto nid = again.find("/usr/lib/dir/inside");
  ASSERT_TRUE(nid.has_value());
  const Reader::Inode file = again.inode(*nid);
  ASSERT_EQ(::rename((top_ + "/lib/dir").c_str(), (top_ + "/lib/gone").c_str()), 0);
  ASSERT_EQ(::symlink("gone", (top_ + "/lib/dir").c_str()), 0);
  std::vector<char> block(Shelf::kBlock);
  EXPECT_FALSE(other.read(file.data, block));
}

TEST_F(ShelfTest, PathsThatAreNoneAreRefused) {
  Shelf shelf;
  for (const char* path : {"", "/", "usr", "/usr/", "/usr/../etc", "/a//b", "/./a"}) {
    EXPECT_FALSE(shelf.make_folder(path).ok()) << path;
  }
}

TEST_F(ShelfTest, WhatIsNotUsedIsZero) {
  Shelf shelf;
  std::vector<char> blocks(4 * Shelf::kBlock, 'x');
  EXPECT_TRUE(shelf.read(Shelf::kBytes - blocks.size(), blocks));
  EXPECT_EQ(std::string(blocks.begin(), blocks.end()), std::string(blocks.size(), '\0'));
}

}  // namespace
}  // namespace carrel::microvm
