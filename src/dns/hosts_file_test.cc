#include "dns/hosts_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::dns {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> found(std::string_view text, std::string_view name) {
  std::vector<std::string> result;
  for (const Address& address : find_in_hosts(text, policy::canonical_host(name).value())) {
    result.push_back(address.ip.text());
  }
  return result;
}

TEST(HostsFile, HasAddressesOfNamesAndTheirAliases) {
  constexpr std::string_view kText =
      "127.0.0.1 localhost\n"
      "  10.0.0.1\tdb.example DB Other.\r\n"
      "10.0.0.2 web.example # db\n"
      "#10.0.0.3 db\n"
      "fd00::1 db\n10.0.0.1 db\n"
      "nonsense db\n\n10.0.0.9";
  EXPECT_THAT(found(kText, "db"), ElementsAre("10.0.0.1", "fd00::1"));
  EXPECT_THAT(found(kText, "DB.example"), ElementsAre("10.0.0.1"));
  EXPECT_THAT(found(kText, "other"), ElementsAre("10.0.0.1"));
  EXPECT_THAT(found(kText, "web.example"), ElementsAre("10.0.0.2"));
  EXPECT_THAT(found(kText, "example"), IsEmpty());
  EXPECT_THAT(found("", "db"), IsEmpty());
}

}  // namespace
}  // namespace carrel::dns
