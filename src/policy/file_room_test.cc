#include "policy/file_room.h"

#include <gtest/gtest.h>

namespace carrel::policy {
namespace {

constexpr std::uint64_t kRoomMebibyte = 1U << 20;

Spec with_memory(std::uint64_t mebibytes) {
  Spec spec;
  spec.limits.memory_bytes = mebibytes * kRoomMebibyte;
  return spec;
}

TEST(FileRoom, WhatFilesMayHoldLeavesAQuarterOfTheMemory) {
  for (const std::uint64_t memory : {6U, 64U, 512U, 4096U}) {
    for (const RootMode mode : {RootMode::kReadOnly, RootMode::kThrowawayOverlay}) {
      for (const Backend backend : {Backend::kNative, Backend::kBubblewrap}) {
        Spec spec = with_memory(memory);
        spec.root_mode = mode;
        spec.backend = backend;
        spec.limits.disk_bytes = 100 * spec.limits.memory_bytes;
        spec.limits.tmp_bytes = spec.limits.disk_bytes;
        const FileRoom room = file_room(spec);
        const std::uint64_t places = backend == Backend::kBubblewrap ? 2 : 1;
        const std::uint64_t bytes =
            room.disk_bytes * places + room.tmp_bytes * places + room.root_bytes;
        EXPECT_LE(bytes + bytes / 4, spec.limits.memory_bytes / 4 * 3) << memory;
      }
    }
  }
}

TEST(FileRoom, ASizeThatFitsIsGivenAsAskedFor) {
  Spec spec = with_memory(512);
  EXPECT_EQ(file_room(spec).tmp_bytes, 100 * kRoomMebibyte);
  EXPECT_EQ(file_room(spec).disk_bytes >> 20, 207U);
  EXPECT_EQ(file_room(spec).root_bytes, 0U);
  EXPECT_EQ(file_room_text(spec), "/workspace and HOME hold 207 MiB, /tmp 100 MiB, in memory");
  spec.limits.disk_bytes = 50 * kRoomMebibyte;
  EXPECT_EQ(file_room(spec).disk_bytes, 50 * kRoomMebibyte);
  spec.workspace = "w";
  EXPECT_EQ(file_room_text(spec), "HOME holds 50 MiB, /tmp 100 MiB, in memory");
  spec = with_memory(4096);
  EXPECT_EQ(file_room(spec).disk_bytes, 1024 * kRoomMebibyte);
  EXPECT_EQ(file_room(spec).tmp_bytes, 100 * kRoomMebibyte);
}

TEST(FileRoom, WhatDoesNotFitIsDividedAmongTheLargerOnes) {
  Spec spec = with_memory(100);
  EXPECT_EQ(file_room(spec).disk_bytes, 30 * kRoomMebibyte);
  EXPECT_EQ(file_room(spec).tmp_bytes, 30 * kRoomMebibyte);
  spec.limits.tmp_bytes = kRoomMebibyte;
  EXPECT_EQ(file_room(spec).disk_bytes, 59 * kRoomMebibyte);
  spec.root_mode = RootMode::kThrowawayOverlay;
  EXPECT_EQ(file_room(spec).disk_bytes, 59 * kRoomMebibyte / 2);
  EXPECT_EQ(file_room(spec).root_bytes, 59 * kRoomMebibyte / 2);
}

}  // namespace
}  // namespace carrel::policy
