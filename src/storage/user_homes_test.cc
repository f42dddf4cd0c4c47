#include "storage/user_homes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace carrel::storage {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "bob:x:1000:1000:Bob,,,:/home/bob/:/bin/bash\n"
    "odd:x:many:1::/srv/odd:/bin/sh\n"
    "short:x:1001\n"
    "ann:x:1002:1002::/srv//ann:/bin/sh";

// R123
TEST(UserHomes, PeopleAndRootHaveHomesAndServicesHaveFolders) {
  EXPECT_THAT(homes_of_people(kPasswd), ElementsAre("/root", "/home/bob", "/srv/odd", "/srv/ann"));
  EXPECT_THAT(homes_of_services(kPasswd), ElementsAre("/usr/sbin"));
}

TEST(UserHomes, TheHostsHomesIncludeRootsAndTheCallersOwn) {
  ::setenv("HOME", "/nowhere/of/mine/", 1);
  auto homes = user_homes();
  ASSERT_TRUE(homes.ok());
  EXPECT_THAT(homes.value(), Contains("/root"));
  EXPECT_THAT(homes.value(), Contains("/nowhere/of/mine"));
  EXPECT_THAT(homes.value(), Not(Contains("/usr/sbin")));
  EXPECT_THAT(homes.value(), Not(Contains("/")));
}

}  // namespace
}  // namespace carrel::storage
