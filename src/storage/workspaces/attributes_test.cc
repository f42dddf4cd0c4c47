#include "storage/workspaces/attributes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "storage/workspaces/compare.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

class AttributesTest : public WorkspacesTest {
 protected:
  void SetUp() override {
    write("f", "x");
    if (::setxattr((tree() + "/f").c_str(), "user.probe", "", 0, 0) != 0) {
      GTEST_SKIP() << "this file system has no attributes for users";
    }
    ::removexattr((tree() + "/f").c_str(), "user.probe");
  }
  void set(const std::string& path, const std::string& name, const std::string& value) const {
    ASSERT_EQ(
        ::setxattr((tree() + "/" + path).c_str(), name.c_str(), value.data(), value.size(), 0), 0)
        << name;
  }
  static std::string of(const std::string& whole) {
    return read_attributes(UniqueFd(::open(whole.c_str(), O_RDONLY | O_CLOEXEC)).get());
  }
  [[nodiscard]] std::string in_tree(const std::string& path) const {
    return of(tree() + "/" + path);
  }
  Status restore(const SnapshotRow& row) {
    return restore_snapshot(*store_, store_->find("w").value(), row, writers_);
  }
};

TEST_F(AttributesTest, OnlyThoseOfUsersAreRead) {
  set("f", "user.b", std::string("\0,=", 3));
  set("f", "user.a", "text/plain");
  set("f", "user.overlay.opaque", "y");
  if (::geteuid() == 0) {
    set("f", "trusted.t", "x");
  }
  EXPECT_EQ(in_tree("f"), "user.a=text/plain,user.b=%00%2c%3d");
}

TEST_F(AttributesTest, TheyAreBounded) {
  for (int i = 0; i < 50; ++i) {
    if (::setxattr((tree() + "/f").c_str(), ("user." + std::to_string(i)).c_str(), "v", 1, 0) !=
        0) {
      break;
    }
  }
  const std::string many = in_tree("f");
  EXPECT_LE(std::count(many.begin(), many.end(), '='), static_cast<long>(kMostAttributes));
  write("large", "x");
  if (::setxattr((tree() + "/large").c_str(), "user.large", std::string(3000, 'x').data(), 3000,
                 0) == 0) {
    set("large", "user.small", "s");
    EXPECT_EQ(in_tree("large"), "user.small=s");
  }
}

TEST_F(AttributesTest, TextsOfOthersAreRefused) {
  for (const char* text : {"user.a=1", "user.a=", "", "user.a=%00,user.b=x"}) {
    EXPECT_TRUE(are_attributes(text)) << text;
  }
  for (const char* text :
       {"trusted.a=1", "security.capability=x", "user.overlay.opaque=y", "user.=x", "user.a",
        "user.a=%0", "user.a=%0g", "user.b=x,user.a=x", "user.a=1,", "user.a%00b=x", "user.a= "}) {
    EXPECT_FALSE(are_attributes(text)) << text;
    const UniqueFd file(::open((tree() + "/f").c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_FALSE(write_attributes(file.get(), text, "f").ok()) << text;
    EXPECT_EQ(in_tree("f"), "") << text;
  }
  EXPECT_FALSE(are_attributes("user.a=" + std::string(kMostAttributeBytes, 'x')));
}

TEST_F(AttributesTest, ASnapshotKeepsThemAndARestoreBringsThemBack) {
  write("d/g", "y");
  set("f", "user.a", "1");
  set("d", "user.d", "directory");
  const SnapshotRow first = snapshot();
  EXPECT_EQ(of(root_ + "/layers/" + first.layers[0].id + "/tree/f"), "user.a=1");
  EXPECT_EQ(of(root_ + "/layers/" + first.layers[0].id + "/tree/d"), "user.d=directory");
  // Nothing else of them changes.
  set("f", "user.a", "2");
  ::removexattr((tree() + "/d").c_str(), "user.d");
  set("d/g", "user.g", "new");
  const SnapshotRow second = snapshot();
  EXPECT_EQ(changed_in(second), (std::vector<std::string>{"d d", "f d/g", "f f"}));
  EXPECT_EQ(snapshot().layers.size(), 2U) << "and nothing since";
  ASSERT_TRUE(restore(first).ok());
  EXPECT_EQ(in_tree("f") + " " + in_tree("d") + " " + in_tree("d/g"), "user.a=1 user.d=directory ");
  auto now = current_tree(*store_, store_->find("w").value());
  ASSERT_TRUE(now.ok());
  EXPECT_TRUE(compare_trees(store_->read_tree(first.layers).value(), now.value()).empty());
  ASSERT_TRUE(restore(second).ok());
  EXPECT_EQ(in_tree("f") + " " + in_tree("d") + " " + in_tree("d/g"), "user.a=2  user.g=new");
}

TEST_F(AttributesTest, AChangeIsADifference) {
  write("d/g", "y");
  set("f", "user.a", "1");
  const SnapshotRow first = snapshot();
  set("f", "user.a", "2");
  set("d", "user.d", "3");
  auto now = current_tree(*store_, store_->find("w").value());
  ASSERT_TRUE(now.ok());
  const auto differences = compare_trees(store_->read_tree(first.layers).value(), now.value());
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].path, "d");
  EXPECT_EQ(differences[1].path, "f");
  EXPECT_EQ(differences[1].before->entry.attributes, "user.a=1");
  EXPECT_EQ(differences[1].after->entry.attributes, "user.a=2");
}

}  // namespace
}  // namespace carrel::storage
