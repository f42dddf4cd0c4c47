#include "egress/synthetic_names.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/files.h"

namespace carrel::egress {
namespace {

class SyntheticNamesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "namesXXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
    directory_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  static policy::Host host(const std::string& text) { return policy::canonical_host(text).value(); }

  std::string path_;
  UniqueFd directory_;
};

TEST_F(SyntheticNamesTest, ANameKeepsItsAddressesAcrossARestart) {
  auto before = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(before.ok());
  auto one = before->addresses_of(host("one.test"));
  auto two = before->addresses_of(host("two.test"));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->v4, two->v4);
  auto after = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(after.ok());
  ASSERT_NE(after->name_of(one->v4), nullptr);
  EXPECT_EQ(after->name_of(one->v4)->text(), "one.test");
  EXPECT_EQ(after->name_of(two->v6)->text(), "two.test");
  EXPECT_EQ(after->addresses_of(host("two.test"))->v4, two->v4);
}

TEST_F(SyntheticNamesTest, AnAddressThatWasGivenToNobodyHasNoName) {
  auto names = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(names.ok());
  auto given = names->addresses_of(host("one.test"));
  ASSERT_TRUE(given.ok());
  for (const char* text : {"198.18.1.1", "198.18.0.255", "11.1.1.1", "fd63:6172:7265:1::c612:101",
                           "fd63:6172:7265:2::c612:100", "::c612:100"}) {
    EXPECT_EQ(names->name_of(*policy::IpAddress::parse(text)), nullptr) << text;
  }
}

TEST_F(SyntheticNamesTest, ALineThatACrashCutIsForgotten) {
  {
    auto names = SyntheticNames::open(directory_.get());
    ASSERT_TRUE(names.ok());
    ASSERT_TRUE(names->addresses_of(host("one.test")).ok());
  }
  const UniqueFd file(::openat(directory_.get(), "names", O_WRONLY | O_APPEND | O_CLOEXEC));
  ASSERT_TRUE(write_all(file.get(), "two.te").ok());
  auto names = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(names.ok());
  auto three = names->addresses_of(host("three.test"));
  ASSERT_TRUE(three.ok());
  auto again = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->name_of(three->v4)->text(), "three.test");
}

TEST_F(SyntheticNamesTest, ASandboxGetsOnlyItsShareOfNames) {
  auto names = SyntheticNames::open(directory_.get());
  ASSERT_TRUE(names.ok());
  for (std::size_t i = 0; i < SyntheticNames::kMost; ++i) {
    ASSERT_TRUE(names->addresses_of(host("n" + std::to_string(i) + ".test")).ok());
  }
  EXPECT_EQ(names->addresses_of(host("more.test")).error().code, Code::kResource);
  EXPECT_TRUE(names->addresses_of(host("n7.test")).ok());
}

}  // namespace
}  // namespace carrel::egress
