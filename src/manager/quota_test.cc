#include "manager/quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::manager {
namespace {

using testing::HasSubstr;

Quota quota_of(std::initializer_list<std::string_view> parts) {
  Quota quota;
  for (const std::string_view part : parts) {
    EXPECT_TRUE(add_to_quota(part, quota).ok()) << part;
  }
  return quota;
}

TEST(Quota, WhatIsNotSaidHasNoLimit) {
  EXPECT_TRUE(check_quota({}, {1'000'000, 0, 1ULL << 50, 0}, {1, 1000, 1ULL << 40, 1}).ok());
}

TEST(Quota, EachSideIsCheckedAndNamed) {
  const Quota quota = quota_of({"sandboxes=2", "cpus=1.5", "memory=1g", "disk=2g"});
  const Weight one{1, 1000, 512U << 20, 1U << 30};
  EXPECT_TRUE(check_quota(quota, {}, one).ok());
  const Weight many{2, 0, 0, 0};
  EXPECT_THAT(check_quota(quota, many, one).error().message, HasSubstr("sandboxes"));
  EXPECT_THAT(check_quota(quota, one, one).error().message, HasSubstr("cores"));
  EXPECT_THAT(check_quota(quota, {1, 0, 600U << 20, 0}, one).error().message, HasSubstr("memory"));
  EXPECT_THAT(check_quota(quota, {1, 0, 0, (1U << 30) + 1}, one).error().message,
              HasSubstr("disk"));
  EXPECT_EQ(check_quota(quota, many, one).error().code, Code::kResource);
}

// J18
TEST(Quota, SumsThatAreTooLargeAlreadyDoNotWrapAround) {
  const Quota quota = quota_of({"memory=1g"});
  EXPECT_FALSE(check_quota(quota, {5, 0, 2ULL << 30, 0}, {1, 0, 1, 0}).ok());
  EXPECT_FALSE(check_quota(quota, {0, 0, 1, 0}, {1, 0, ~0ULL, 0}).ok());
}

TEST(Quota, WhatIsStoppedHoldsItsDiskAlone) {
  const Weight rest = weight_at_rest(policy::Limits{});
  EXPECT_EQ(rest.sandboxes, 0U);
  EXPECT_EQ(rest.memory_bytes, 0U);
  EXPECT_EQ(rest.cpu_millis, 0U);
  EXPECT_EQ(rest.disk_bytes, policy::Limits{}.disk_bytes);
}

// J18
TEST(Quota, WordsThatMakeNoSenseAreRefused) {
  Quota quota;
  for (const char* text :
       {"", "memory", "memory=", "memory=-1", "cpus=many", "boxes=3", "sandboxes=1.5", "=3"}) {
    EXPECT_EQ(add_to_quota(text, quota).error().code, Code::kInvalid) << text;
  }
}

TEST(Room, AHostWithTooLittleLeftTakesNoMore) {
  const Reserve reserve{256U << 20, 1U << 30};
  EXPECT_TRUE(check_room(reserve, {256U << 20, 1U << 30}).ok());
  EXPECT_TRUE(check_room(reserve, {}).ok());
  const Status memory = check_room(reserve, {255U << 20, 1ULL << 40});
  EXPECT_EQ(memory.error().code, Code::kResource);
  EXPECT_THAT(memory.error().message, HasSubstr("memory"));
  EXPECT_THAT(check_room(reserve, {1ULL << 40, 0}).error().message, HasSubstr("disk"));
}

TEST(Room, ThisHostHasSome) {
  const HostRoom room = look_at_room("/");
  EXPECT_GT(room.memory_bytes.value_or(0), 0U);
  EXPECT_TRUE(room.disk_bytes.has_value());
}

}  // namespace
}  // namespace carrel::manager
