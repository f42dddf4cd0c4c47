#include "backends/microvm/snapshots.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"

namespace carrel::microvm {
namespace {

namespace fs = std::filesystem;

class SnapshotsTest : public testing::Test {
 protected:
  SnapshotsTest() {
    std::string name = testing::TempDir() + "snapshots-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    home_ = name;
    write("qemu", "one");
    write("kernel", "two");
    shape_.vmm = home_ + "/qemu";
    shape_.version = "QEMU 1";
    shape_.kernel = {home_ + "/kernel", "6.1", ""};
    shape_.terms.memory_bytes = 512U << 20;
    shape_.first_files = "files";
  }
  ~SnapshotsTest() override { fs::remove_all(home_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(home_ + "/" + name) << text;
  }
  Snapshots open() const {
    auto opened = Snapshots::open(home_);
    EXPECT_TRUE(opened.ok());
    return std::move(opened.value());
  }
  std::string in_folder(const std::string& name) const { return home_ + "/machines/" + name; }
  bool exists(const std::string& name) const { return fs::exists(in_folder(name)); }

  // One that is whole.
  std::string keep(const Shape& shape) const {
    const Snapshots all = open();
    std::string name = Snapshots::name_of(shape);
    auto file = all.begin(name);
    EXPECT_TRUE(file.ok());
    EXPECT_TRUE(write_all(file->get(), "memory").ok());
    EXPECT_TRUE(all.publish(name, file.value(), Snapshots::about(shape)).ok());
    return name;
  }
  std::optional<Code> code_of(const std::string& name) const {
    auto found = open().find(name);
    return found.ok() ? std::nullopt : std::optional<Code>(found.error().code);
  }
  static void age(const std::string& path, std::time_t seconds) {
    const timespec then{std::time(nullptr) - seconds, 0};
    const timespec both[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
  }

  std::string home_;
  Shape shape_;
};

TEST_F(SnapshotsTest, WhatIsKeptIsFoundByWhoeverHasThatShape) {
  EXPECT_EQ(code_of(Snapshots::name_of(shape_)), Code::kNotFound);
  const std::string name = keep(shape_);
  auto found = open().find(name);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(read_all(found->get()).value(), "memory");
  EXPECT_NE(write_all(found->get(), "other").ok(), true);
  struct stat info{};
  ASSERT_EQ(::stat(in_folder(name).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
}

TEST_F(SnapshotsTest, AnotherShapeHasAnotherName) {
  const std::string name = Snapshots::name_of(shape_);
  EXPECT_EQ(Snapshots::name_of(shape_), name);
  for (const auto change :
       {+[](Shape& one) { one.terms.memory_bytes += 1U << 20; },
        +[](Shape& one) { one.terms.cpus = 2; }, +[](Shape& one) { one.first_files += "x"; },
        +[](Shape& one) { one.version = "QEMU 2"; },
        +[](Shape& one) { one.terms.accelerator = Accelerator::kKvm; },
        +[](Shape& one) { one.kernel.path = one.vmm; }}) {
    Shape other = shape_;
    change(other);
    EXPECT_NE(Snapshots::name_of(other), name);
  }
  write("kernel", "another one");
  EXPECT_NE(Snapshots::name_of(shape_), name);
}

// Whoever can write it owns the machine.
TEST_F(SnapshotsTest, OneThatOthersCouldTouchIsRefusedAndRemoved) {
  for (const mode_t mode : {0602U, 0620U, 0640U, 0604U}) {
    const std::string name = keep(shape_);
    ASSERT_EQ(::chmod(in_folder(name).c_str(), mode), 0);
    EXPECT_EQ(code_of(name), Code::kDenied) << mode;
    EXPECT_FALSE(exists(name));
  }
  std::string name = keep(shape_);
  ASSERT_EQ(::link(in_folder(name).c_str(), (home_ + "/second").c_str()), 0);
  EXPECT_EQ(code_of(name), Code::kDenied);
  EXPECT_FALSE(exists(name));
  name = keep(shape_);
  fs::rename(in_folder(name), home_ + "/elsewhere");
  fs::create_symlink(home_ + "/elsewhere", in_folder(name));
  EXPECT_EQ(code_of(name), Code::kDenied);
  EXPECT_TRUE(fs::exists(home_ + "/elsewhere"));
  EXPECT_FALSE(fs::is_symlink(in_folder(name)));
  if (::geteuid() == 0) {
    name = keep(shape_);
    ASSERT_EQ(::chown(in_folder(name).c_str(), 65534, 65534), 0);
    EXPECT_EQ(code_of(name), Code::kDenied);
  }
}

TEST_F(SnapshotsTest, AFolderThatOthersCouldTouchIsRefused) {
  keep(shape_);
  ASSERT_EQ(::chmod((home_ + "/machines").c_str(), 0750), 0);
  auto opened = Snapshots::open(home_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kDenied);
  ASSERT_EQ(::chmod((home_ + "/machines").c_str(), 0700), 0);
  fs::rename(home_ + "/machines", home_ + "/other");
  fs::create_directory_symlink(home_ + "/other", home_ + "/machines");
  EXPECT_FALSE(Snapshots::open(home_).ok());
}

TEST_F(SnapshotsTest, OnlyOneMakesIt) {
  const Snapshots all = open();
  const std::string name = Snapshots::name_of(shape_);
  EXPECT_TRUE(all.can_make(name).ok());
  {
    const auto first = all.begin(name);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(open().begin(name).error().code, Code::kConflict);
    EXPECT_FALSE(open().can_make(name).ok());
    all.sweep();
    EXPECT_TRUE(exists(name + ".new"));
  }
  // Its maker is gone.
  EXPECT_TRUE(all.can_make(name).ok());
  all.sweep();
  EXPECT_FALSE(exists(name + ".new"));
}

TEST_F(SnapshotsTest, WhatDidNotWorkIsNotTriedAgainAtOnce) {
  const Snapshots all = open();
  const std::string name = Snapshots::name_of(shape_);
  all.give_up(name, "QEMU gave up");
  EXPECT_EQ(read_file_at(AT_FDCWD, in_folder(name + ".failed"), 100).value(), "QEMU gave up\n");
  EXPECT_FALSE(all.can_make(name).ok());
  all.sweep();
  EXPECT_FALSE(all.can_make(name).ok());
  age(in_folder(name + ".failed"), 2L * 3600);
  EXPECT_TRUE(all.can_make(name).ok());
  all.sweep();
  EXPECT_FALSE(exists(name + ".failed"));
}

TEST_F(SnapshotsTest, WhatNobodyCanUseAnyMoreIsSwept) {
  const std::string name = keep(shape_);
  open().sweep();
  EXPECT_TRUE(exists(name));
  write("kernel", "another one");
  open().sweep();
  EXPECT_FALSE(exists(name));
  EXPECT_FALSE(exists(name + ".about"));
  const std::string second = keep(shape_);
  fs::remove(home_ + "/qemu");
  open().sweep();
  EXPECT_FALSE(exists(second));
  write("qemu", "three");
  const std::string third = keep(shape_);
  age(in_folder(third), 8L * 24 * 3600);
  open().sweep();
  EXPECT_FALSE(exists(third));
}

TEST_F(SnapshotsTest, ThereAreNeverMany) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < Snapshots::kMost + 2; ++i) {
    shape_.terms.cpus = i + 1;
    names.push_back(keep(shape_));
    age(in_folder(names.back()), 100 - static_cast<std::time_t>(i));
  }
  // The one that was used last stays, though it is the oldest.
  EXPECT_TRUE(open().find(names[0]).ok());
  open().sweep();
  std::size_t left = 0;
  for (const std::string& name : names) {
    left += exists(name) ? 1U : 0U;
  }
  EXPECT_EQ(left, Snapshots::kMost);
  EXPECT_TRUE(exists(names[0]));
  EXPECT_FALSE(exists(names[1]));
}

}  // namespace
}  // namespace carrel::microvm
