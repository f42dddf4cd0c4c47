#include "storage/images/image_user.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

class ImageUserTest : public testing::Test {
 protected:
  ImageUserTest() {
    std::string pattern = testing::TempDir() + "carrel-image-user-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    fs::create_directory(root_ + "/etc");
    write("passwd",
          "root:x:0:0:root:/root:/bin/sh\n\nbroken\napp:x:1234:5678:App:/app:/bin/sh\n"
          "toor:x:0:0::/:/bin/sh\nUpper:x:77:78::/:\nnegative:x:-1:-1::/:\n"
          "huge:x:4294967295:1::/:\n4321:x:99:98::/:\nroot:x:555:555::/:\n");
    write("group", "root:x:0:\nstaff:x:50:app\nbad:x:y:\n");
  }
  ~ImageUserTest() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ + "/etc/" + name) << text;
  }
  // "NAME UID GID", "nobody", or the code of the error.
  std::string resolve(const std::string& user) const {
    const auto root = open_at(AT_FDCWD, root_, O_RDONLY | O_DIRECTORY);
    const auto found = resolve_user(root.value().get(), user);
    if (!found.ok()) {
      return found.error().code == Code::kNotFound ? "not found" : found.error().to_string();
    }
    const auto& one = found.value();
    return one ? one->name + " " + std::to_string(one->uid) + " " + std::to_string(one->gid)
               : "nobody";
  }

  std::string root_;
};

TEST_F(ImageUserTest, NamesAndNumbersAreLookedUp) {
  EXPECT_EQ(resolve("app"), "app 1234 5678");
  EXPECT_EQ(resolve("1234"), "app 1234 5678");
  EXPECT_EQ(resolve("app:staff"), "app 1234 50");
  EXPECT_EQ(resolve("app:60"), "app 1234 60");
  EXPECT_EQ(resolve("1001:0"), " 1001 0");
  EXPECT_EQ(resolve("1001"), " 1001 0");
  EXPECT_EQ(resolve("4321"), " 99 98") << "a name that looks like a number is a name";
}

TEST_F(ImageUserTest, RootIsNobodyUnderAnyName) {
  for (const char* user : {"", "root", "0", "root:app", "0:0", ":staff", "toor", "00"}) {
    EXPECT_EQ(resolve(user), "nobody") << user;
  }
}

TEST_F(ImageUserTest, NamesThatASandboxCannotHaveAreLeftOut) {
  EXPECT_EQ(resolve("Upper"), " 77 78");
  EXPECT_EQ(resolve("555"), " 555 555") << "there is one root in /etc/passwd";
}

TEST_F(ImageUserTest, WhatMakesNoSenseIsAnError) {
  for (const char* user : {"missing", "negative", "huge", "-1", "4294967295", "99999999999",
                           "app:", "app:bad", "app:none", "app\n", "../app", "broken"}) {
    EXPECT_EQ(resolve(user), "not found") << user;
  }
}

TEST_F(ImageUserTest, NeitherLinksNorPipesNorLargeFilesAreRead) {
  const std::string outside = root_ + "/outside";
  std::ofstream(outside) << "app:x:7:7::/:\n";
  const std::string passwd = root_ + "/etc/passwd";
  fs::remove(passwd);
  fs::create_symlink(outside, passwd);
  EXPECT_EQ(resolve("app"), "not found");
  fs::remove(passwd);
  ASSERT_EQ(::mkfifo(passwd.c_str(), 0600), 0);
  EXPECT_EQ(resolve("app"), "not found");
  fs::remove(passwd);
  write("passwd", std::string(2U << 20, '\n') + "app:x:7:7::/:\n");
  EXPECT_EQ(resolve("app"), "not found");
  fs::remove_all(root_ + "/etc");
  fs::create_directory_symlink("/etc", root_ + "/etc");
  EXPECT_EQ(resolve("nobody"), "not found");
}

}  // namespace
}  // namespace carrel::storage
