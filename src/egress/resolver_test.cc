#include "egress/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dns/test_server.h"
#include "support/patience.h"

namespace carrel::egress {
namespace {

using dns::Asked;
using HostFound = Result<std::vector<policy::IpAddress>>;
using ServerSays = std::vector<dns::Message>;

const dns::Message kHostAddress = {192, 0, 2, 7};
const dns::Message kForgedAddress = {192, 0, 2, 66};

// Each of the servers is asked once.
dns::Configuration asking(std::vector<dns::Configuration::Server> servers) {
  dns::Configuration configuration;
  configuration.servers = std::move(servers);
  configuration.attempts = 1;
  return configuration;
}

Task<void> find_host(Loop& loop, Resolver& resolver, std::optional<HostFound>& found) {
  const policy::Host host = policy::canonical_host("host.example").value();
  const std::optional<DohServer> over_https;
  HostFound result = co_await resolver.resolve(host, over_https);
  found = std::move(result);
  loop.stop();
}

HostFound find_by(const dns::Configuration& configuration) {
  Loop loop;
  Resolver resolver(loop, configuration);
  std::optional<HostFound> found;
  spawn(find_host(loop, resolver, found));
  EXPECT_TRUE(found.has_value() || loop.run().ok());
  return *found;
}

std::string in_text(const HostFound& found) {
  if (!found.ok()) {
    return found.error().message;
  }
  std::string text;
  for (const policy::IpAddress& address : found.value()) {
    text += (text.empty() ? "" : " ") + address.text();
  }
  return text;
}

TEST(ResolverTest, DatagramsThatAreNoAnswerArePassedOver) {
  const dns::TestServer server([](const Asked& asked) -> ServerSays {
    dns::Message forged = asked.reply(dns::kFound, {kForgedAddress});
    forged[1] ^= 1;
    dns::Message circle = asked.circle(dns::kFound);
    circle[1] ^= 1;
    return {{}, {1, 2, 3}, forged, circle, asked.reply(dns::kFound, {kHostAddress})};
  });
  EXPECT_EQ(in_text(find_by(asking({server.place()}))), "192.0.2.7");
}

TEST(ResolverTest, AnAnswerThatCannotBeUsedIsAFailureOfItsServer) {
  const dns::TestServer bad(
      [](const Asked& asked) -> ServerSays { return {asked.circle(dns::kFound)}; });
  const dns::TestServer good(
      [](const Asked& asked) -> ServerSays { return {asked.reply(dns::kFound, {kHostAddress})}; });
  EXPECT_EQ(in_text(find_by(asking({bad.place()}))), "the resolver's answer makes no sense");
  EXPECT_EQ(in_text(find_by(asking({bad.place(), good.place()}))), "192.0.2.7");
}

TEST(ResolverTest, TheHintAloneNamesAServerThatFails) {
  const dns::TestServer server(
      [](const Asked& asked) -> ServerSays { return {asked.reply(dns::kServfail)}; });
  const HostFound found = find_by(asking({server.place()}));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, "the resolver failed");
  EXPECT_EQ(found.error().hint, "the server is " + server.place().text());
}

// All of it is there when the time is over: datagrams that are no answer, and one that is.
TEST(ResolverTest, DatagramsThatAreNoAnswerDoNotOutliveTheDeadline) {
  std::atomic<bool> has_asked = false;
  const dns::TestServer server([&](const Asked& asked) -> ServerSays {
    if (!asked.is_a()) {
      return {asked.reply(dns::kServfail)};
    }
    EXPECT_TRUE(test::eventually(std::chrono::seconds(10), [&] { return has_asked.load(); }));
    return {{1, 2, 3}, {1, 2, 3}, asked.reply(dns::kFound, {kHostAddress})};
  });
  dns::Configuration configuration = asking({server.place()});
  configuration.timeout = std::chrono::milliseconds(200);
  Loop loop;
  Resolver resolver(loop, configuration);
  std::optional<HostFound> found;
  spawn(find_host(loop, resolver, found));
  has_asked = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_TRUE(loop.run().ok());
  ASSERT_TRUE(found.has_value());
  ASSERT_FALSE(found->ok()) << in_text(*found);
  EXPECT_EQ(found->error().error_number, ETIMEDOUT) << found->error().message;
}

}  // namespace
}  // namespace carrel::egress
