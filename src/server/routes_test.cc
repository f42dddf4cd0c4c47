#include "server/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/schemas.h"

namespace carrel::server {
namespace {

using testing::ElementsAre;

TEST(Routes, PathIsMatchedAsItIs) {
  const Match match = find_route("GET", "/v1/sandboxes/a-1/commands/7");
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.route->operation, "getCommand");
  EXPECT_THAT(match.arguments, ElementsAre("a-1", "7"));
  for (const char* path :
       {"/v1/sandboxes/", "/v1/sandboxes//", "//v1/sandboxes", "/v1/sandboxes/a/",
        "/v1/sandboxes/%61", "/v1/sandboxes/..", "/v1/sandboxes/a;b", "/v1/sandboxes/a b",
        "/V1/sandboxes", "v1/sandboxes", "*", "", "/", "/v1"}) {
    EXPECT_EQ(find_route("GET", path).route, nullptr) << path;
  }
  EXPECT_EQ(find_route("GET", "/v1/sandboxes/" + std::string(65, 'a')).route, nullptr);
}

TEST(Routes, WrongMethodIsToldWithTheRightOnes) {
  const Match match = find_route("PATCH", "/v1/sandboxes");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.methods, "POST, GET");
  EXPECT_NE(find_route("HEAD", "/v1/health").route, nullptr);
}

// J21
TEST(Routes, OnlyHealthIsOpenAndWhatChangesIsForWriters) {
  for (const Route& route : routes()) {
    EXPECT_EQ(route.scope == Scope::kOpen, route.path == "/v1/health" || route.path == "/v1/ready")
        << route.path;
    if (route.method != "GET" && route.operation != "searchFiles") {
      EXPECT_EQ(route.scope, Scope::kWrite) << route.method << " " << route.path;
    }
  }
}

TEST(Openapi, OperationsHaveNamesOfTheirOwnAndSchemasThatAreThere) {
  const Json all = schemas();
  ASSERT_TRUE(all.is_object());
  std::set<std::string_view> names;
  for (const Route& route : routes()) {
    EXPECT_TRUE(names.insert(route.operation).second) << route.operation;
    for (const std::string_view schema : {route.request_schema, route.response_schema}) {
      EXPECT_TRUE(schema.empty() || all.contains(schema)) << schema;
    }
  }
  EXPECT_EQ(openapi()["openapi"], "3.1.0");
}

TEST(Query, IsDecodedOnceAndStrictly) {
  auto query = parse_query("?path=a%2Fb+c&x=&y");
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(query.value()["path"], "a/b c");
  EXPECT_EQ(query.value()["x"], "");
  EXPECT_EQ(query.value().size(), 3U);
  EXPECT_EQ(parse_query("?a=%2525").value()["a"], "%25");
  for (const char* bad : {"?a=1&a=2", "?a=%", "?a=%2", "?a=%zz", "?a=%00"}) {
    EXPECT_FALSE(parse_query(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace carrel::server
