#include "policy/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::string& text) {
  auto file = parse_tasks(text, "plan.toml");
  return file.ok() ? std::string() : file.error().to_string();
}

TEST(TaskFile, EachTaskHasWhatIsCommonAndItsOwn) {
  auto file = parse_tasks(
      "memory = \"100m\"\nat_once = 2\n"
      "[tasks.a]\ncommand = \"echo hi\"\n"
      "[tasks.b]\nargv = [\"cat\", \"-\"]\nstdin = \"in\"\nmemory = \"200m\"\n"
      "network = [\"api.test\"]\nmount = [\"/srv:/data\"]\n",
      "plan.toml");
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(file->at_once, 2U);
  ASSERT_EQ(file->tasks.size(), 2U);
  const Task& a = file->tasks[0];
  const Task& b = file->tasks[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_THAT(a.arguments, ElementsAre("bash", "-c", "echo hi"));
  EXPECT_EQ(a.spec.limits.memory_bytes, 100U << 20);
  EXPECT_EQ(a.spec.network.mode, NetworkMode::kNone);
  EXPECT_TRUE(a.spec.mounts.empty());
  EXPECT_THAT(b.arguments, ElementsAre("cat", "-"));
  EXPECT_EQ(b.input, "in");
  EXPECT_EQ(b.spec.limits.memory_bytes, 200U << 20);
  EXPECT_NE(b.spec.network.mode, NetworkMode::kNone);
  EXPECT_EQ(b.spec.mounts.size(), 1U);
}

TEST(TaskFile, WhatMakesNoSenseIsRefusedWithItsPlace) {
  EXPECT_THAT(error_of(""), HasSubstr("tasks"));
  EXPECT_THAT(error_of("tasks = 3\n"), HasSubstr("plan.toml:1: "));
  EXPECT_THAT(error_of("[tasks.a]\nmemory = \"1g\"\n"), HasSubstr("needs a command"));
  EXPECT_THAT(error_of("[tasks.a]\ncommand = \"x\"\nargv = [\"x\"]\n"), HasSubstr("either"));
  EXPECT_THAT(error_of("[tasks.a]\ncommand = 3\n"), HasSubstr("a string"));
  EXPECT_THAT(error_of("[tasks.a]\nargv = [1]\n"), HasSubstr("an array of strings"));
  EXPECT_THAT(error_of("[tasks.a]\nargv = []\n"), HasSubstr("an array of strings"));
  EXPECT_THAT(error_of("[tasks.a]\ncommand = \"x\"\nmemori = \"1g\"\n"), HasSubstr("memory"));
  EXPECT_THAT(error_of("[tasks.\"../a\"]\ncommand = \"x\"\n"), HasSubstr("plan.toml:1: "));
  EXPECT_THAT(error_of("at_once = 0\n[tasks.a]\ncommand = \"x\"\n"), HasSubstr("at_once"));
  EXPECT_THAT(error_of("a = [}]"), HasSubstr("plan.toml"));
}

}  // namespace
}  // namespace carrel::policy
