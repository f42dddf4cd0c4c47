#include "backends/native/image_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace carrel::native {
namespace {

namespace fs = std::filesystem;

class ImageHomeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "carrel-home-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = fs::canonical(name);
    fs::create_directories(root_ + "/etc");
    spec_.image = "dir:" + root_;
    spec_.image_name = "some@sha256:x";
    if (!shows_image_home(spec_)) {
      GTEST_SKIP() << "this kernel's overlays take no mapped layers";
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  void people(const std::string& text) const { std::ofstream(root_ + "/etc/passwd") << text; }
  // The path of the home that is found; empty if there is none.
  [[nodiscard]] std::string found() const {
    std::vector<GivenTree> trees;
    EXPECT_TRUE(add_image_home(spec_, trees).ok());
    EXPECT_LE(trees.size(), 1U);
    if (trees.empty()) {
      return {};
    }
    EXPECT_TRUE(is_image_home(trees[0]));
    EXPECT_EQ(trees[0].mode, policy::MountMode::kReadOnly);
    EXPECT_EQ(trees[0].path, root_ + place_of(trees[0]));
    return place_of(trees[0]);
  }

  std::string root_;
  policy::Spec spec_;
};

TEST_F(ImageHomeTest, ItIsThatOfTheUserOrOfRoot) {
  fs::create_directories(root_ + "/root");
  fs::create_directories(root_ + "/srv/app");
  EXPECT_EQ(found(), "/root");
  people("root:x:0:0::/root:/bin/sh\napp:x:77:77::/srv/app:/bin/sh\n");
  EXPECT_EQ(found(), "/root");
  spec_.user = "app";
  EXPECT_EQ(found(), "/root") << "the number is another one's";
  spec_.user_id = 77;
  EXPECT_EQ(found(), "/srv/app");
  people("app:x:77:77");
  EXPECT_EQ(found(), "");
}

TEST_F(ImageHomeTest, OnlyADirectoryWithoutALinkOnTheWayIsOne) {
  EXPECT_EQ(found(), "");
  fs::create_symlink("/etc", root_ + "/root");
  EXPECT_EQ(found(), "");
  fs::create_symlink("/", root_ + "/srv");
  fs::create_directories(root_ + "/opt/x");
  std::ofstream(root_ + "/opt/file") << "x";
  for (const char* home : {"/srv/etc", "/opt/file", "/", "", "root", "/..", "/../..", "/opt/../etc",
                           "/etc", "/proc", "/proc/self/root", "/workspace", "/dev", "/tmp", "/run",
                           "/opt/x/", "//opt/x", "/nonexistent"}) {
    people("root:x:0:0::" + std::string(home) + ":/bin/sh\n");
    EXPECT_EQ(found(), "") << home;
  }
  people("root:x:0:0::/opt/x:/bin/sh\n");
  EXPECT_EQ(found(), "/opt/x");
  fs::remove(root_ + "/etc/passwd");
  fs::create_symlink("/etc/passwd", root_ + "/etc/passwd");
  EXPECT_EQ(found(), "") << "it was read through a link";
}

TEST_F(ImageHomeTest, OnlyAnImportedImageHasOneAndAMountGoesBeforeIt) {
  fs::create_directories(root_ + "/root");
  std::vector<GivenTree> trees(1);
  trees[0].target = "/home/agent";
  ASSERT_TRUE(add_image_home(spec_, trees).ok());
  EXPECT_EQ(trees.size(), 1U);
  trees[0].target = "/home/agent/data";
  ASSERT_TRUE(add_image_home(spec_, trees).ok());
  ASSERT_EQ(trees.size(), 2U);
  EXPECT_TRUE(is_image_home(trees[0])) << "it is what the other one is mounted in";
  spec_.image_name.clear();  // a directory of the host's: its home could be anybody's
  EXPECT_EQ(found(), "");
  spec_.image_name = "some@sha256:x";
  spec_.backend = policy::Backend::kBubblewrap;
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace carrel::native
