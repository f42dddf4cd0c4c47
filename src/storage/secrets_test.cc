#include "storage/secrets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace carrel::storage {
namespace {

class SecretsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/secrets-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    home_.emplace(std::move(Home::open_at(path_ + "/home").value()));
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  std::string path_;
  std::optional<Home> home_;
};

TEST_F(SecretsTest, ASecretIsAFileOfTheUsersAlone) {
  Secrets secrets = std::move(Secrets::open(*home_).value());
  ASSERT_TRUE(secrets.set("github", "token-value-1\n").ok());
  EXPECT_EQ(secrets.read("github").value(), "token-value-1");
  struct stat info{};
  ASSERT_EQ(::stat((path_ + "/home/secrets/github").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  ASSERT_EQ(::stat((path_ + "/home/secrets").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  ASSERT_EQ(secrets.list().value().size(), 1U);
  EXPECT_EQ(secrets.list().value().front().name, "github");
}

TEST_F(SecretsTest, ARemovedSecretIsGoneForWhoeverReadsItNext) {
  Secrets secrets = std::move(Secrets::open(*home_).value());
  const Secrets other = std::move(Secrets::open(*home_).value());
  ASSERT_TRUE(secrets.set("a", "12345678").ok());
  ASSERT_TRUE(other.read("a").ok());
  ASSERT_TRUE(secrets.remove("a").ok());
  EXPECT_EQ(other.read("a").error().code, Code::kNotFound);
  EXPECT_EQ(secrets.remove("a").error().code, Code::kNotFound);
}

TEST_F(SecretsTest, NamesLeadNowhereElse) {
  Secrets secrets = std::move(Secrets::open(*home_).value());
  for (const char* name : {"", ".", "..", "../installation", "a/b", "-a", "a.b", "a b"}) {
    EXPECT_FALSE(secrets.set(name, "12345678").ok()) << name;
    EXPECT_FALSE(secrets.read(name).ok()) << name;
  }
  std::filesystem::create_symlink("../installation", path_ + "/home/secrets/link");
  EXPECT_FALSE(secrets.read("link").ok());
}

TEST_F(SecretsTest, AValueIsOneVisibleLineThatIsLongEnoughToBeTold) {
  Secrets secrets = std::move(Secrets::open(*home_).value());
  EXPECT_FALSE(secrets.set("a", "1234567").ok());
  EXPECT_FALSE(secrets.set("a", "12345678\r\nX: y").ok());
  EXPECT_FALSE(secrets.set("a", std::string("1234567\0", 8)).ok());
  EXPECT_FALSE(secrets.set("a", std::string(kLongestSecret + 1, 'x')).ok());
  EXPECT_TRUE(secrets.set("a", "12345678\r\n").ok());
}

TEST_F(SecretsTest, ADirectoryThatIsOpenToOthersIsNotUsed) {
  ASSERT_TRUE(Secrets::open(*home_).ok());
  ASSERT_EQ(::chmod((path_ + "/home/secrets").c_str(), 0750), 0);
  EXPECT_FALSE(Secrets::open(*home_).ok());
}

}  // namespace
}  // namespace carrel::storage
