#include "storage/open_state.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>

namespace carrel::storage {
namespace {

class OpenStateTest : public ::testing::Test {
 protected:
  OpenStateTest() {
    char name[] = "/tmp/carrel-state-XXXXXX";
    root_ = ::mkdtemp(name);
    home_ = std::move(Home::open_at(root_).value());
  }
  ~OpenStateTest() override { std::filesystem::remove_all(root_); }

  static SandboxRow row(const std::string& id) {
    SandboxRow row;
    row.id = id;
    row.state = "creating";
    row.spec = "{}";
    return row;
  }
  bool has(const std::string& id) {
    auto state = State::open(home_);
    return state.ok() && state->find(id).value().has_value();
  }

  std::string root_;
  Home home_;
};

TEST_F(OpenStateTest, StaysOpenAsLongAsTheFileIsTheSame) {
  OpenState open(home_);
  State* const first = open.get().value();
  ASSERT_TRUE(first->add(row("a")).ok());
  EXPECT_EQ(open.get().value(), first);
  EXPECT_TRUE(has("a"));
}

TEST_F(OpenStateTest, WritesToTheFileThatIsThereNow) {
  OpenState open(home_);
  ASSERT_TRUE(open.get().value()->add(row("a")).ok());
  // Somebody moved a damaged database away.
  for (const char* file : {"state.db", "state.db-wal", "state.db-shm"}) {
    std::filesystem::rename(root_ + "/" + file, root_ + "/old-" + file);
  }
  ASSERT_TRUE(open.get().value()->add(row("b")).ok());
  EXPECT_TRUE(has("b"));
  EXPECT_FALSE(has("a"));
}

}  // namespace
}  // namespace carrel::storage
