#include "storage/box_use.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "storage/box.h"

namespace carrel::storage {
namespace {

class BoxUseTest : public ::testing::Test {
 protected:
  BoxUseTest() {
    char name[] = "/tmp/carrel-use-XXXXXX";
    root_ = ::mkdtemp(name);
    home_ = std::move(Home::open_at(root_).value());
    std::filesystem::create_directory(root_ + "/run/box/" + id_);
    std::ofstream(root_ + "/run/box/" + id_ + "/record") << "id=" << id_ << "\n";
    std::filesystem::last_write_time(root_ + "/run/box/" + id_ + "/record", long_ago_);
  }
  ~BoxUseTest() override { std::filesystem::remove_all(root_); }

  const std::filesystem::file_time_type long_ago_ =
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  std::string root_;
  const std::string id_ = "00000000-0000-4000-8000-000000000000";
  Home home_;
};

TEST_F(BoxUseTest, WhatIsUsedIsNotUnusedHoweverManyUseIt) {
  const std::int64_t before = last_use(home_, id_);
  auto one = BoxUse::begin(home_, id_);
  ASSERT_TRUE(one.ok());
  {
    auto two = BoxUse::begin(home_, id_);
    ASSERT_TRUE(two.ok());
    EXPECT_EQ(keep_unused(home_, id_).error().code, Code::kConflict);
  }
  EXPECT_EQ(keep_unused(home_, id_).error().code, Code::kConflict);
  one.value() = BoxUse();
  EXPECT_TRUE(keep_unused(home_, id_).ok());
  EXPECT_GT(last_use(home_, id_), before);
}

TEST_F(BoxUseTest, SandboxThatIsNotThereCannotBeUsed) {
  EXPECT_EQ(BoxUse::begin(home_, "11111111-0000-4000-8000-000000000000").error().code, Code::kGone);
}

TEST_F(BoxUseTest, PauseIsReadAsItWasNoted) {
  EXPECT_FALSE(noted_pause(home_, id_).has_value());
  ASSERT_TRUE(note_pause(home_, id_, {"idle", Pause::Until::kUsed}).ok());
  EXPECT_EQ(noted_pause(home_, id_)->reason, "idle");
  EXPECT_EQ(noted_pause(home_, id_)->until, Pause::Until::kUsed);
  ASSERT_TRUE(note_pause(home_, id_, {"", Pause::Until::kResumed}).ok());
  EXPECT_EQ(noted_pause(home_, id_)->until, Pause::Until::kResumed);
  ASSERT_TRUE(drop_pause(home_, id_).ok());
  ASSERT_TRUE(drop_pause(home_, id_).ok());
  EXPECT_FALSE(noted_pause(home_, id_).has_value());
}

TEST_F(BoxUseTest, StandstillIsOfOneAtATime) {
  auto use = BoxUse::begin(home_, id_);
  auto first = lock_standstill(home_, id_, 0);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(lock_standstill(home_, id_, 10).error().code, Code::kConflict);
  first.value().reset();
  EXPECT_TRUE(lock_standstill(home_, id_, 0).ok());
}

TEST_F(BoxUseTest, WishIsPrivateAndGoesWithItsSandbox) {
  EXPECT_EQ(read_wish(home_, id_).error().code, Code::kConflict);
  ASSERT_TRUE(put_wish(home_, id_, "{}", Lasting::kSynced).ok());
  EXPECT_EQ(read_wish(home_, id_).value(), "{}");
  const auto mode = std::filesystem::status(root_ + "/wishes/" + id_).permissions();
  EXPECT_EQ(static_cast<unsigned>(mode), 0600U);
  sweep_wishes(home_, {});  // a new one may be of a sandbox on its way
  EXPECT_TRUE(read_wish(home_, id_).ok());
  std::filesystem::last_write_time(root_ + "/wishes/" + id_, long_ago_);
  sweep_wishes(home_, {id_});
  EXPECT_TRUE(read_wish(home_, id_).ok());
  sweep_wishes(home_, {});
  EXPECT_FALSE(read_wish(home_, id_).ok());
}

}  // namespace
}  // namespace carrel::storage
