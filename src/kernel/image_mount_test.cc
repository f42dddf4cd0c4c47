#include "kernel/image_mount.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace carrel::kernel {
namespace {

namespace fs = std::filesystem;

class ImageMount : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "to mount a file takes root";
    }
    char name[] = "/var/tmp/carrel-image-XXXXXX";
    path_ = ::mkdtemp(name);
    directory_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::ofstream(path_ + "/image").put('\0');
    fs::resize_file(path_ + "/image", 16U << 20);
    const std::string make = "PATH=$PATH:/usr/sbin:/sbin mke2fs -qF -t ext4 " + path_ + "/image";
    if (std::system((make + " >/dev/null 2>&1").c_str()) != 0) {
      GTEST_SKIP() << "this host has no mke2fs";
    }
    if (auto mount = mount_image(directory_.get(), "image"); !mount.ok()) {
      GTEST_SKIP() << mount.error().to_string();
    }
  }
  void TearDown() override {
    if (!path_.empty()) {
      EXPECT_TRUE(goes_away()) << "a device is left";
      fs::remove_all(path_);
    }
  }

  // How many devices have the file.
  [[nodiscard]] int devices() const {
    int count = 0;
    for (const auto& device : fs::directory_iterator("/sys/block")) {
      std::string file;
      std::ifstream(device.path() / "loop/backing_file") >> file;
      count += file == path_ + "/image" ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] bool goes_away() const {
    for (int round = 0; round < 200 && devices() != 0; ++round) {
      ::usleep(10'000);
    }
    return devices() == 0;
  }
  static bool write(int top, const char* name) {
    return UniqueFd(::openat(top, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)).valid();
  }

  std::string path_;
  UniqueFd directory_;
};

TEST_F(ImageMount, AllWhoMountItHaveOneFileSystem) {
  auto one = mount_image(directory_.get(), "image");
  auto two = mount_image(directory_.get(), "image");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(devices(), 1);
  EXPECT_TRUE(write(one->get(), "file"));
  EXPECT_EQ(::faccessat(two->get(), "file", F_OK, 0), 0);
}

TEST_F(ImageMount, WhatWasOpenedInItOutlivesTheMount) {
  UniqueFd top;
  {
    auto mount = mount_image(directory_.get(), "image");
    ASSERT_TRUE(mount.ok());
    top = UniqueFd(::openat(mount->get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  EXPECT_TRUE(write(top.get(), "file"));
  EXPECT_EQ(devices(), 1);
}

TEST_F(ImageMount, TheDeviceEndsWithAProcessThatIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mount = mount_image(directory_.get(), "image");
    (void)!::write(ends[1], mount.ok() ? "+" : "-", 1);
    ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, '+');
  EXPECT_EQ(devices(), 1);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(goes_away());
}

TEST_F(ImageMount, NoDevicesAndNoSetIdBitsCountInIt) {
  auto mount = mount_image(directory_.get(), "image");
  ASSERT_TRUE(mount.ok());
  ASSERT_EQ(::mknodat(mount->get(), "null", S_IFCHR | 0666, 0x103), 0);
  EXPECT_LT(::openat(mount->get(), "null", O_RDONLY | O_CLOEXEC), 0);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(ImageMount, APartOfItIsAMountThatLeadsNowhereElse) {
  auto mount = mount_image(directory_.get(), "image");
  ASSERT_TRUE(mount.ok());
  ASSERT_EQ(::mkdirat(mount->get(), "part", 0755), 0);
  EXPECT_TRUE(write(mount->get(), "outside") && write(mount->get(), "part/inside"));
  auto part = split_mount(std::move(mount.value()), "part");
  ASSERT_TRUE(part.ok()) << part.error().to_string();
  EXPECT_EQ(::faccessat(part->get(), "inside", F_OK, 0), 0);
  EXPECT_NE(::faccessat(part->get(), "../outside", F_OK, 0), 0);
}

TEST_F(ImageMount, AMissingFileIsAnError) {
  EXPECT_FALSE(mount_image(directory_.get(), "nothing").ok());
  std::ofstream(path_ + "/empty").put('\0');
  EXPECT_FALSE(mount_image(directory_.get(), "empty").ok());
}

}  // namespace
}  // namespace carrel::kernel
