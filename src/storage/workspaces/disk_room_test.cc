#include "storage/workspaces/disk_room.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <numeric>
#include <random>

#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

using Bytes = std::vector<std::uint64_t>;

TEST(DiskRoom, WhoWantsLittleGetsItAndTheOthersShareTheRest) {
  EXPECT_EQ(divide_room(100, {10, 100, 100}), (Bytes{10, 45, 45}));
  EXPECT_EQ(divide_room(100, {100, 10, 20}), (Bytes{70, 10, 20}));
  EXPECT_EQ(divide_room(100, {30, 30, 30}), (Bytes{30, 30, 30}));
  EXPECT_EQ(divide_room(0, {30, 0}), (Bytes{0, 0}));
  EXPECT_EQ(divide_room(7, {}), Bytes{});
}

TEST(DiskRoom, NeverMoreIsGivenThanThereIs) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    Bytes wanted(random() % 8);
    for (std::uint64_t& one : wanted) {
      one = random() % 1000;
    }
    const std::uint64_t room = random() % 4000;
    const Bytes given = divide_room(room, wanted);
    const std::uint64_t all = std::accumulate(wanted.begin(), wanted.end(), std::uint64_t{0});
    EXPECT_EQ(std::accumulate(given.begin(), given.end(), std::uint64_t{0}), std::min(all, room));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(given[i], wanted[i]);
    }
  }
}

TEST(DiskRoom, APartOfTheHostIsKept) {
  char name[] = "/var/tmp/carrel-room-XXXXXX";
  const std::string path = ::mkdtemp(name);
  {
    const Home home = std::move(Home::open_at(path).value());
    auto room = look_at_host_room(home);
    ASSERT_TRUE(room.ok());
    struct statvfs info{};
    ASSERT_EQ(::statvfs(path.c_str(), &info), 0);
    EXPECT_GE(room->kept, 32U << 20);
    EXPECT_LE(room->kept, 1U << 30);
    EXPECT_LE(room->free, std::uint64_t{info.f_blocks} * info.f_frsize);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace carrel::storage
