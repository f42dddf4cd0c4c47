#include "http/tcp.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "dns/socket_address.h"

namespace carrel::http {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DialPatience kDialPatience{.each = milliseconds(10'000)};
constexpr std::uint16_t kNobodyListens = 1;

dns::Address place_of(const char* text) { return *dns::Address::parse(text); }

// No stream goes to a group, so that there is no route to it on any host.
dns::Address without_a_route() { return place_of("ff02::1"); }

TEST(TcpTest, AnAddressWithoutARouteDoesNotHideWhatAnotherSaid) {
  const dns::Address refusing = place_of("127.0.0.1");
  using Addresses = std::vector<dns::Address>;
  for (const Addresses& addresses :
       {Addresses{refusing, without_a_route()}, Addresses{without_a_route(), refusing}}) {
    const auto dialled = dial_any("host.example", addresses, kNobodyListens, kDialPatience);
    ASSERT_FALSE(dialled.ok());
    EXPECT_EQ(dialled.error().code, Code::kUnavailable);
    EXPECT_EQ(dialled.error().error_number, ECONNREFUSED) << dialled.error().to_string();
    EXPECT_EQ(dialled.error().message, "reach host.example:1: connect");
    EXPECT_THAT(dialled.error().hint, IsEmpty());
  }
}

TEST(TcpTest, AHostOfOneFamilyThatHasNoRouteIsToldSo) {
  const auto dialled = dial_any("host.example", {without_a_route(), without_a_route()},
                                kNobodyListens, kDialPatience);
  ASSERT_FALSE(dialled.ok());
  EXPECT_THAT(dialled.error().hint, HasSubstr("it has no address but of IPv6"));
}

TEST(TcpTest, OnceTheTimeForAllHasPassedNoOtherAddressIsTried) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  dns::SocketAddress second = dns::SocketAddress::of(place_of("127.0.0.2"), 0);
  ASSERT_EQ(::bind(listener.get(), second.get(), second.size), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  ASSERT_EQ(::getsockname(listener.get(), second.get(), &second.size), 0);
  const std::vector<dns::Address> addresses = {place_of("127.0.0.1"), place_of("127.0.0.2")};
  const DialPatience over{.each = milliseconds(10'000), .all = Clock::now()};
  const auto dialled = dial_any("host.example", addresses, second.port(), over);
  EXPECT_FALSE(dialled.ok());
  pollfd visited{listener.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&visited, 1, 100), 0);
}

}  // namespace
}  // namespace carrel::http
