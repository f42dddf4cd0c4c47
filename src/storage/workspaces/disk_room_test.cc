#include "storage/workspaces/disk_room.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/files.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::storage {
namespace {

class DiskRoom : public ::testing::Test {
 protected:
  DiskRoom() {
    char name[] = "/var/tmp/carrel-room-XXXXXX";
    path_ = ::mkdtemp(name);
    home_.emplace(std::move(Home::open_at(path_).value()));
    place_path_ = path_ + "/workspaces/w";
    EXPECT_TRUE(make_directories(place_path_, 0700).ok());
    place_ = UniqueFd(::open(place_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~DiskRoom() override { std::filesystem::remove_all(path_); }

  HostRoom room() const { return look_at_host_room(place_.get()).value(); }

  std::string path_;
  std::string place_path_;
  std::optional<Home> home_;
  UniqueFd place_;
};

TEST_F(DiskRoom, APartOfTheHostIsKept) {
  struct statvfs info{};
  ASSERT_EQ(::statvfs(path_.c_str(), &info), 0);
  EXPECT_GE(room().kept, 32U << 20);
  EXPECT_LE(room().kept, 1U << 30);
  EXPECT_LE(room().free, std::uint64_t{info.f_blocks} * info.f_frsize);
}

TEST_F(DiskRoom, MoreThanThereIsCanBePromised) {
  EXPECT_EQ((HostRoom{.free = 100, .kept = 10, .promised = 20}).spare(), 70);
  EXPECT_EQ((HostRoom{.free = 100, .kept = 10, .promised = 200}).spare(), -110);
}

TEST_F(DiskRoom, OneThatIsMountedIsPromisedWhatItHasNoBlocksFor) {
  constexpr std::uint64_t kSize = 300U << 20;
  auto top = make_disk(place_.get(), kSize);
  if (!top.ok()) {
    GTEST_SKIP() << top.error().to_string();
  }
  // Others that are mounted at the same time may come and go.
  const std::uint64_t unbacked = unbacked_bytes(place_.get());
  EXPECT_GE(unbacked, kSize);
  EXPECT_GE(room().promised, unbacked);
  ASSERT_TRUE(set_aside(place_.get()).ok());
  EXPECT_EQ(unbacked_bytes(place_.get()), 0U);
  EXPECT_TRUE(claim_room(*home_, place_.get(), Claim::kLasting).ok());
  const auto spare = spare_bytes(place_.get());
  ASSERT_TRUE(spare.ok());
  EXPECT_GE(spare.value().at_most, kSize - (10U << 20));
  EXPECT_GE(spare.value().at_least, kSize - (50U << 20));
  const auto given_back = shrink_disk(place_.get());
  ASSERT_TRUE(given_back.ok()) << given_back.error().to_string();
  EXPECT_GE(given_back.value(), kSize - (50U << 20));
  EXPECT_LE(spare_bytes(place_.get()).value().at_most, 32U << 20) << "its own tables at most";
  // What was trimmed once and has blocks again is trimmed again.
  ASSERT_TRUE(set_aside(place_.get()).ok());
  EXPECT_GE(shrink_disk(place_.get()).value(), kSize - (50U << 20));
}

TEST_F(DiskRoom, OneThatIsToTakeNothingNewSaysThatItIsFull) {
  auto top = make_disk(place_.get(), 100U << 20);
  if (!top.ok()) {
    GTEST_SKIP() << top.error().to_string();
  }
  if (Status closed = take_new_data(place_.get(), TakesNew::kNo); !closed.ok()) {
    GTEST_SKIP() << closed.error().to_string();
  }
  const auto write = [&] {
    return replace_file_at(top.value().get(), "f", std::string(1U << 20, 'x'), 0600);
  };
  const Status full = write();
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().error_number, ENOSPC);
  EXPECT_TRUE(take_new_data(place_.get(), TakesNew::kYes).ok());
  EXPECT_TRUE(write().ok());
}

}  // namespace
}  // namespace carrel::storage
