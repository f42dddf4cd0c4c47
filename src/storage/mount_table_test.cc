#include "storage/mount_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/files.h"

namespace carrel::storage {
namespace {

TEST(MountTable, LinesAreReadWithTheirEscapes) {
  auto table = parse_mountinfo(
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "36 22 8:1 /srv/a\\040b /mnt/x\\012y\\134z rw - ext4 /dev/sda1 rw\n"
      "40 22 0:22 / /proc rw shared:5 master:1 - proc proc rw\n");
  ASSERT_TRUE(table.ok());
  ASSERT_EQ(table.value().size(), 3U);
  EXPECT_EQ(table.value()[1].id, 36U);
  EXPECT_EQ(table.value()[1].device, "8:1");
  EXPECT_EQ(table.value()[1].root, "/srv/a b");
  EXPECT_EQ(table.value()[1].mount_point, "/mnt/x\ny\\z");
  EXPECT_EQ(table.value()[1].file_system, "ext4");
  EXPECT_EQ(table.value()[2].file_system, "proc");
}

TEST(MountTable, LinesThatMakeNoSenseAreAnError) {
  for (const char* text : {"x\n", "22 1 8:1 / /\n", "a 1 8:1 / / rw - ext4 x rw\n", "\n",
                           "22 1 8:1 / / rw shared:1 ext4 /dev/sda1 rw\n"}) {
    EXPECT_FALSE(parse_mountinfo(text).ok()) << text;
  }
}

TEST(MountTable, OpenFoldersAreFoundWithoutTheLinksThatLedThere) {
  auto table = read_mount_table();
  ASSERT_TRUE(table.ok());
  auto folder = open_at(AT_FDCWD, "/proc/../usr/./bin/..", O_PATH);
  ASSERT_TRUE(folder.ok());
  auto location = locate(folder->get(), table.value());
  ASSERT_TRUE(location.ok()) << location.error().to_string();
  EXPECT_EQ(location->path, "/usr");
  EXPECT_FALSE(location->device.empty());
  auto proc = open_at(AT_FDCWD, "/proc", O_PATH);
  ASSERT_TRUE(proc.ok());
  EXPECT_EQ(locate(proc->get(), table.value())->file_system, "proc");
}

TEST(MountTable, FilesOnUnknownMountsAreNowhere) {
  auto folder = open_at(AT_FDCWD, "/usr", O_PATH);
  ASSERT_TRUE(folder.ok());
  EXPECT_FALSE(locate(folder->get(), {}).ok());
}

}  // namespace
}  // namespace carrel::storage
