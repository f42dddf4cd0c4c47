#include "dns/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::dns {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

std::vector<std::string> servers_in(std::string_view text) {
  std::vector<std::string> result;
  for (const Configuration::Server& server : parse_configuration(text).servers) {
    result.push_back(server.text());
  }
  return result;
}

std::vector<std::string> search_in(std::string_view text) {
  std::vector<std::string> result;
  for (const policy::Host& domain : parse_configuration(text).search) {
    result.push_back(domain.text());
  }
  return result;
}

TEST(DnsConfiguration, NamesUpToThreeServersOfBothFamilies) {
  EXPECT_THAT(servers_in("# nameserver 9.9.9.9\nnameserver 10.0.0.1\n;nameserver 9.9.9.9\n"
                         "nameserver\t2001:db8::1 \nnameserver nonsense\nnameserver\n"
                         "nameserver 10.0.0.2\nnameserver 10.0.0.3\n"),
              ElementsAre("10.0.0.1", "2001:db8::1", "10.0.0.2"));
  EXPECT_THAT(servers_in(""), ElementsAre("127.0.0.1"));
  EXPECT_THAT(servers_in("search a.org\n"), ElementsAre("127.0.0.1"));
}

TEST(DnsConfiguration, ALinkLocalServerHasAZone) {
  const Configuration named = parse_configuration("nameserver fe80::1%lo\n");
  EXPECT_EQ(named.servers[0].address.ip.text(), "fe80::1");
  EXPECT_EQ(named.servers[0].address.scope, 1U);
  EXPECT_EQ(parse_configuration("nameserver fe80::1%7\n").servers[0].address.scope, 7U);
  EXPECT_THAT(servers_in("nameserver fe80::1%nosuchinterface\n"), ElementsAre("127.0.0.1"));
  EXPECT_THAT(servers_in("nameserver 10.0.0.1%lo\n"), ElementsAre("127.0.0.1"));
}

TEST(DnsConfiguration, TheLastSearchListCounts) {
  EXPECT_THAT(search_in("search a.org B.org.\n"), ElementsAre("a.org", "b.org"));
  EXPECT_THAT(search_in("search a.org b.org\ndomain c.org d.org\n"), ElementsAre("c.org"));
  EXPECT_THAT(search_in("domain c.org\nsearch . a.org 1.2.3.4\n"), ElementsAre("a.org"));
  std::string many = "search";
  for (int i = 0; i < 40; ++i) {
    many += " d" + std::to_string(i) + ".org";
  }
  EXPECT_EQ(search_in(many).size(), 16U);
}

TEST(DnsConfiguration, OptionsHaveLimits) {
  const Configuration usual = parse_configuration("");
  EXPECT_EQ(usual.ndots, 1U);
  EXPECT_EQ(usual.timeout, seconds(5));
  EXPECT_EQ(usual.attempts, 2U);
  EXPECT_FALSE(usual.rotate || usual.use_tcp || usual.no_aaaa);
  const Configuration set = parse_configuration(
      "options ndots:5 timeout:1 attempts:3\noptions rotate use-vc no-aaaa unknown:9\n");
  EXPECT_EQ(set.ndots, 5U);
  EXPECT_EQ(set.timeout, seconds(1));
  EXPECT_EQ(set.attempts, 3U);
  EXPECT_TRUE(set.rotate && set.use_tcp && set.no_aaaa);
  const Configuration much =
      parse_configuration("options ndots:99 timeout:99999999999999999999 attempts:1000\n");
  EXPECT_EQ(much.ndots, 15U);
  EXPECT_EQ(much.timeout, seconds(30));
  EXPECT_EQ(much.attempts, 5U);
  const Configuration odd = parse_configuration("options ndots:0 timeout:0 attempts:0 ndots:x\n");
  EXPECT_EQ(odd.ndots, 0U);
  EXPECT_EQ(odd.timeout, seconds(1));
  EXPECT_EQ(odd.attempts, 1U);
}

}  // namespace
}  // namespace carrel::dns
