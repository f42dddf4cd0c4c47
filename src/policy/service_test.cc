#include "policy/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/config.h"
#include "policy/spec_json.h"

namespace carrel::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Service> parse(std::string_view text) { return parse_service({"--service", text}); }

TEST(Service, IsANameAPortAndACommandForTheShell) {
  auto service = parse("web:8000=python3 -m http.server 8000 --bind=127.0.0.1");
  ASSERT_TRUE(service.ok()) << service.error().to_string();
  EXPECT_EQ(service->name, "web");
  EXPECT_EQ(service->ready_port, 8000);
  EXPECT_THAT(service->arguments,
              ElementsAre("sh", "-c", "python3 -m http.server 8000 --bind=127.0.0.1"));
  EXPECT_EQ(service_text(*service), "web:8000=python3 -m http.server 8000 --bind=127.0.0.1");
  EXPECT_THAT(parse("a=true")->ready_command, IsEmpty());
}

TEST(Service, IsAnObjectWithWordsAndACommandThatSaysWhenItIsReady) {
  auto service =
      parse(R"({"name": "db", "command": ["db", "--quiet"], "ready": {"command": "db ping"}})");
  ASSERT_TRUE(service.ok()) << service.error().to_string();
  EXPECT_THAT(service->arguments, ElementsAre("db", "--quiet"));
  EXPECT_THAT(service->ready_command, ElementsAre("sh", "-c", "db ping"));
  EXPECT_EQ(service->ready_port, 0);
}

TEST(Service, WhatMakesNoSenseIsRefused) {
  for (const char* text :
       {"", "web", "=true", "web=", "we b=true", "../a=true", "web:0=true", "web:65536=true",
        "web:x=true", "{", "{}", R"({"name": "a"})", R"({"name": "a", "command": []})",
        R"({"name": "a", "command": [1]})", R"({"name": "a", "command": "x", "port": 1})",
        R"({"name": "a", "command": "x", "ready": {}})",
        R"({"name": "a", "command": "x", "ready": {"port": "1"}})",
        R"({"name": "a", "command": "x", "ready": {"port": 1, "command": "y"}})",
        R"({"name": "a", "command": "x y", "ready": 5})"}) {
    EXPECT_FALSE(parse(text).ok()) << text;
  }
  EXPECT_FALSE(parse("a=" + std::string(kLongestService, 'x')).ok());
  EXPECT_FALSE(parse(std::string("a=x\0y", 5)).ok());
}

TEST(Service, TableOfTheConfigurationIsRead) {
  auto config = parse_config(
      "[services.web]\ncommand = \"serve\"\nready = {port = 80}\n"
      "[services.db]\ncommand = [\"db\", \"run\"]\nready = {command = \"ping\"}\n",
      "carrel.toml");
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  auto spec = spec_from(*config, Operation::kCreate);
  ASSERT_TRUE(spec.ok());
  ASSERT_EQ(spec->services.size(), 2U);
  auto again = spec_from_json(spec_to_json(*spec, Values::kIncluded));
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->services.size(), 2U);
  EXPECT_EQ(service_text(again->services[1]), service_text(spec->services[1]));
  EXPECT_EQ(again->services[1].ready_port, spec->services[1].ready_port);
}

TEST(Service, WrongTableIsRefusedWithItsPlace) {
  const auto error = [](const char* text) {
    auto config = parse_config(text, "carrel.toml");
    return config.ok() ? std::string() : config.error().to_string();
  };
  EXPECT_THAT(error("\n[services.web]\ncomand = \"x\"\n"), HasSubstr("carrel.toml:2: "));
  EXPECT_THAT(error("[services.web]\ncomand = \"x\"\n"), HasSubstr("'comand'"));
  EXPECT_THAT(error("services = 3\n"), HasSubstr("must be an array"));
  EXPECT_THAT(error("[services.web]\nname = \"y\"\ncommand = \"x\"\n"), HasSubstr("name"));
  EXPECT_THAT(error("[services.web]\ncommand = 1.5\n"), HasSubstr("command"));
}

TEST(Service, ThereAreAtMostEight) {
  std::string text;
  for (int i = 0; i < 9; ++i) {
    text += "[services.s" + std::to_string(i) + "]\ncommand = \"x\"\n";
  }
  EXPECT_FALSE(parse_config(text, "carrel.toml").ok());
}

}  // namespace
}  // namespace carrel::policy
