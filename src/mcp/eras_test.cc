#include "mcp/eras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::mcp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(McpEras, ModernRequestSaysWhoAsksInWhichVersion) {
  const Json params = with_modern_meta({{"name", "x"}, {"_meta", {{"progressToken", 3}}}});
  const Json& meta = params["_meta"];
  EXPECT_EQ(meta["progressToken"], 3);
  EXPECT_EQ(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
  EXPECT_TRUE(meta["io.modelcontextprotocol/clientCapabilities"].empty());
  EXPECT_EQ(meta["io.modelcontextprotocol/clientInfo"]["name"], "carrel");
  EXPECT_EQ(params["name"], "x");
}

TEST(McpEras, DiscoveryOfAModernServerIsRead) {
  const auto about = read_discovery(
      {{"supportedVersions", {"2026-07-28", "2025-11-25"}},
       {"capabilities", {{"tools", Json::object()}}},
       {"instructions", "be kind"},
       {"_meta", {{"io.modelcontextprotocol/serverInfo", {{"name", "s"}, {"version", "1"}}}}}});
  ASSERT_TRUE(about.has_value());
  EXPECT_EQ(about->name, "s");
  EXPECT_EQ(about->instructions, "be kind");
  EXPECT_TRUE(about->has_tools);
}

TEST(McpEras, WhatIsNoDiscoveryOfThisVersionIsNone) {
  EXPECT_FALSE(read_discovery(Json::object()).has_value());
  EXPECT_FALSE(read_discovery({{"supportedVersions", "2026-07-28"}}).has_value());
  EXPECT_FALSE(read_discovery({{"supportedVersions", {"2025-11-25"}}}).has_value());
  EXPECT_FALSE(read_discovery({{"supportedVersions", {"2026-07-28", 7}}}).has_value());
}

TEST(McpEras, VersionsOfARefusalAreRead) {
  EXPECT_THAT(*read_supported({-32022, "", {{"supported", {"2027-01-01"}}}}),
              ElementsAre("2027-01-01"));
  EXPECT_FALSE(read_supported({-32022, "", Json()}).has_value());
  EXPECT_FALSE(read_supported({-32601, "", {{"supported", {"2027-01-01"}}}}).has_value());
}

TEST(McpEras, InitializedServerSpeaksAVersionThatIsKnown) {
  for (const std::string_view version : legacy_versions()) {
    const auto read = read_initialized({{"protocolVersion", version}});
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read.value().version, version);
    EXPECT_FALSE(read.value().about.has_tools);
  }
  EXPECT_THAT(read_initialized({{"protocolVersion", "2099-01-01"}}).error().message,
              HasSubstr("'2099-01-01'"));
  EXPECT_FALSE(read_initialized(Json::object()).ok());
  EXPECT_FALSE(read_initialized({{"protocolVersion", "2026-07-28"}}).ok());
}

TEST(McpEras, HeaderValuesComeThrough) {
  EXPECT_EQ(header_value("tools/call"), "tools/call");
  EXPECT_EQ(header_value(""), "");
  EXPECT_EQ(header_value("a\r\nEvil: b"), "=?base64?YQ0KRXZpbDogYg==?=");
  EXPECT_EQ(header_value(" a"), "=?base64?IGE=?=");
  EXPECT_EQ(header_value("\xc3\xa9"), "=?base64?w6k=?=");
  EXPECT_EQ(header_value("=?base64?YQ==?="), "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
}

}  // namespace
}  // namespace carrel::mcp
