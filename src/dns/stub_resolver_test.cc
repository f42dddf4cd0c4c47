#include "dns/stub_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include "dns/test_server.h"
#include "support/patience.h"

namespace carrel::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Found = Result<std::vector<Address>>;
using Replies = std::vector<Message>;

const Message kFour = {127, 1, 2, 3};
const Message kOther = {127, 6, 6, 6};
const Message kSix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

std::vector<std::string> texts(const Found& found) {
  if (!found.ok()) {
    return {found.error().message};
  }
  std::vector<std::string> list;
  for (const Address& address : found.value()) {
    list.push_back(address.ip.text());
  }
  return list;
}

Configuration with(std::vector<Configuration::Server> servers, std::string_view options = "") {
  Configuration configuration = parse_configuration(options);
  configuration.servers = std::move(servers);
  return configuration;
}

Found look_up(const TestServer& server, std::string_view name, std::string_view options = "",
              const Patience& patience = {}) {
  return StubResolver(with({server.place()}, options), "").resolve(name, patience);
}

// Everything has both addresses.
Replies both(const Asked& asked) { return {asked.reply(kFound, {asked.is_a() ? kFour : kSix})}; }

// A server that takes everything and says nothing.
Replies silent(const Asked& /*asked*/) { return {}; }

bool has_ipv6() {
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 place{};
  place.sin6_family = AF_INET6;
  place.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  ::close(fd);
  return bound;
}

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

TEST(StubResolver, BothFamiliesAreFoundAndTakeTurns) {
  const TestServer server([](const Asked& asked) -> Replies {
    return {asked.is_a() ? asked.reply(kFound, {kFour, kOther}) : asked.reply(kFound, {kSix})};
  });
  const Found found = look_up(server, "Host.Example");
  EXPECT_THAT(texts(found), testing::UnorderedElementsAre("127.1.2.3", "::1", "127.6.6.6"));
  EXPECT_EQ(texts(found).front(), "127.1.2.3");
  for (const Asked& asked : server.asked()) {
    EXPECT_EQ(asked.name, "host.example");
    EXPECT_TRUE(asked.edns);
  }
  EXPECT_THAT(server.asked(), SizeIs(2));
}

TEST(StubResolver, AnAnswerThatWasCutIsAskedForOverTcp) {
  const TestServer server([](const Asked& asked) -> Replies {
    if (!asked.tcp) {
      return {asked.reply(kFoundTruncated)};
    }
    return {asked.reply(kFound, std::vector<Message>(asked.is_a() ? 250 : 0, kFour))};
  });
  const auto begin = Clock::now();
  const Found found = look_up(server, "large.example");
  EXPECT_THAT(texts(found), AllOf(SizeIs(250), Each("127.1.2.3")));
  EXPECT_LT(since(begin), test::patient(seconds(2)));
}

TEST(StubResolver, AServerThatFailsForIPv6AloneGivesTheOtherAddresses) {
  const TestServer server([](const Asked& asked) -> Replies {
    return {asked.is_a() ? asked.reply(kFound, {kFour}) : asked.reply(kServfail)};
  });
  const auto begin = Clock::now();
  EXPECT_THAT(texts(look_up(server, "four.example")), ElementsAre("127.1.2.3"));
  EXPECT_LT(since(begin), test::patient(milliseconds(900)));
}

TEST(StubResolver, AServerThatIsSilentForIPv6AloneGivesTheOtherAddressesSoon) {
  const TestServer server([](const Asked& asked) -> Replies {
    return asked.is_a() ? Replies{asked.reply(kFound, {kFour})} : Replies{};
  });
  const auto begin = Clock::now();
  EXPECT_THAT(texts(look_up(server, "four.example")), ElementsAre("127.1.2.3"));
  EXPECT_LT(since(begin), test::patient(seconds(3)));
}

TEST(StubResolver, AServerThatFailsIsNoHostThatDoesNotExist) {
  const TestServer server([](const Asked& asked) -> Replies { return {asked.reply(kServfail)}; });
  const Found found = look_up(server, "broken.example");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kUnavailable);
  EXPECT_EQ(found.error().message, "look up 'broken.example': the name server " +
                                       server.place().text() + " failed (SERVFAIL)");
  EXPECT_THAT(server.names(), SizeIs(2));  // the second attempt
}

TEST(StubResolver, AHostThatDoesNotExistIsOne) {
  const TestServer server([](const Asked& asked) -> Replies { return {asked.reply(kNxdomain)}; });
  const Found found = look_up(server, "nobody.example");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kNotFound);
  EXPECT_EQ(found.error().message, "look up 'nobody.example': there is no such host");
}

TEST(StubResolver, AHostThatDoesNotExistIsKnownSoonThoughOneFamilyIsSilent) {
  const TestServer server([](const Asked& asked) -> Replies {
    return asked.is_a() ? Replies{asked.reply(kNxdomain)} : Replies{};
  });
  const auto begin = Clock::now();
  const Found found = look_up(server, "nobody.example", "options timeout:30\n");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kNotFound);
  EXPECT_LT(since(begin), test::patient(seconds(5)));
}

TEST(StubResolver, WhatOneFamilyHasFoundByTheDeadlineCounts) {
  const TestServer server([](const Asked& asked) -> Replies {
    if (!asked.is_a()) {
      return {};
    }
    return {asked.name == "four.example" ? asked.reply(kFound, {kFour}) : asked.reply(kNxdomain)};
  });
  const auto soon = [] { return Clock::now() + test::patient(milliseconds(300)); };
  EXPECT_THAT(texts(look_up(server, "four.example", "", {.deadline = soon()})),
              ElementsAre("127.1.2.3"));
  const Found nobody = look_up(server, "nobody.example", "", {.deadline = soon()});
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, Code::kNotFound) << nobody.error().message;
}

TEST(StubResolver, AHostWithoutAddressesIsAnotherError) {
  const TestServer server([](const Asked& asked) -> Replies { return {asked.reply(kFound)}; });
  const Found found = look_up(server, "mail.example");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("has neither an IPv4 nor an IPv6 address"));
}

TEST(StubResolver, ALostDatagramIsSentAgain) {
  std::atomic<int> count = 0;
  const TestServer server(
      [&](const Asked& asked) { return ++count <= 2 ? Replies{} : both(asked); });
  const auto begin = Clock::now();
  EXPECT_THAT(texts(look_up(server, "lossy.example")), ElementsAre("127.1.2.3", "::1"));
  EXPECT_THAT(server.asked(), SizeIs(4));
  EXPECT_LT(since(begin), test::patient(seconds(3)));
}

TEST(StubResolver, AnswersToOtherQuestionsAreIgnored) {
  const TestServer server([](const Asked& asked) -> Replies {
    Message id = asked.reply(kFound, {kOther});
    id[1] ^= 1;
    Message name = asked.reply(kFound, {kOther});
    name[13] ^= 1;
    Message type = asked.reply(kFound, {kOther});
    type[12 + asked.name.size() + 3] ^= 16;
    Message query = asked.reply(kFound, {kOther});
    query[2] = 1;
    return {
        {}, {1, 2, 3}, id, name, type, query, asked.reply(kFound, {asked.is_a() ? kFour : kSix})};
  });
  EXPECT_THAT(texts(look_up(server, "target.example")), ElementsAre("127.1.2.3", "::1"));
}

TEST(StubResolver, AnAnswerThatCannotBeUsedIsAFailureOfItsServerAndNoWait) {
  const TestServer bad([](const Asked& asked) -> Replies { return {asked.circle(kFound)}; });
  const auto begin = Clock::now();
  const Found found = look_up(bad, "host.example", "options timeout:30 attempts:1\n");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("the name server " + bad.place().text() +
                                               " gives an answer that makes no sense"));
  const TestServer good(both);
  const StubResolver resolver(with({bad.place(), good.place()}, "options timeout:30 attempts:1\n"),
                              "");
  EXPECT_THAT(texts(resolver.resolve("host.example", {})), ElementsAre("127.1.2.3", "::1"));
  EXPECT_LT(since(begin), test::patient(seconds(5)));
}

TEST(StubResolver, AnswersOfOthersAreIgnored) {
  const TestServer server([](const Asked& asked) -> Replies {
    const int stranger = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const Message forged = asked.reply(kFound, {kOther});
    const auto* client = reinterpret_cast<const sockaddr*>(&asked.client);
    EXPECT_EQ(::sendto(stranger, forged.data(), forged.size(), 0, client, sizeof asked.client),
              static_cast<ssize_t>(forged.size()));
    ::close(stranger);
    return both(asked);
  });
  EXPECT_THAT(texts(look_up(server, "target.example")), ElementsAre("127.1.2.3", "::1"));
}

TEST(StubResolver, IdsAndPortsAreNotGuessed) {
  const TestServer server(both);
  std::set<int> ids;
  std::set<int> ports;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(look_up(server, "host.example").ok());
  }
  for (const Asked& asked : server.asked()) {
    ids.insert(asked.message[0] << 8 | asked.message[1]);
    ports.insert(ntohs(asked.client.sin6_port));
  }
  ASSERT_THAT(server.asked(), SizeIs(40));
  EXPECT_GT(ids.size(), 35U);
  EXPECT_GT(ports.size(), 30U);
}

TEST(StubResolver, AliasesAreFollowed) {
  const TestServer server([](const Asked& asked) -> Replies {
    Message message = asked.reply(kFound);
    if (!asked.is_a()) {
      return {message};
    }
    message[7] = 2;
    // host.example is b.example, which has an address.
    const Message alias = {0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, 'b', 0xc0, 17};
    message.insert(message.end(), alias.begin(), alias.end());
    const Message address = {1, 'b', 0xc0, 17, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 1, 2, 3};
    message.insert(message.end(), address.begin(), address.end());
    return {message};
  });
  EXPECT_THAT(texts(look_up(server, "host.example")), ElementsAre("127.1.2.3"));
}

TEST(StubResolver, SearchDomainsFollowTheDots) {
  const TestServer server([](const Asked& asked) -> Replies {
    return asked.name == "db.two.example" || asked.name == "a.b.c"
               ? both(asked)
               : Replies{asked.reply(kNxdomain)};
  });
  constexpr std::string_view kSearch = "search one.example two.example\noptions ndots:2\n";
  EXPECT_THAT(texts(look_up(server, "db", kSearch)), Contains("127.1.2.3"));
  EXPECT_THAT(server.names(), ElementsAre("db.one.example", "db.two.example"));
  EXPECT_THAT(texts(look_up(server, "a.b.c", kSearch)), Contains("127.1.2.3"));
  ASSERT_THAT(server.names(), SizeIs(3));
  EXPECT_EQ(server.names().back(), "a.b.c");
  EXPECT_THAT(texts(look_up(server, "x.y", kSearch)), ElementsAre(HasSubstr("no such host")));
  EXPECT_THAT(server.names(), ElementsAre(testing::_, testing::_, testing::_, "x.y.one.example",
                                          "x.y.two.example", "x.y"));
  EXPECT_THAT(texts(look_up(server, "x.y.z", kSearch)), ElementsAre(HasSubstr("no such host")));
  ASSERT_THAT(server.names(), SizeIs(9));
  EXPECT_EQ(server.names()[6], "x.y.z");
  // A dot at its end makes a name complete.
  EXPECT_FALSE(look_up(server, "db.", kSearch).ok());
  EXPECT_THAT(server.names(), SizeIs(10));
}

TEST(StubResolver, HostsFileComesFirst) {
  const TestServer server(both);
  const StubResolver resolver(with({server.place()}), "127.9.9.9 db.example db\n");
  EXPECT_THAT(texts(resolver.resolve("DB", {})), ElementsAre("127.9.9.9"));
  EXPECT_THAT(server.asked(), IsEmpty());
  EXPECT_THAT(texts(resolver.resolve("db2", {})), Contains("127.1.2.3"));
}

TEST(StubResolver, AddressesAndThisHostAreKnown) {
  const TestServer server(both);
  for (const char* name : {"localhost", "LocalHost.", "web.localhost"}) {
    EXPECT_THAT(texts(look_up(server, name)), ElementsAre("127.0.0.1", "::1")) << name;
  }
  EXPECT_THAT(texts(look_up(server, "10.1.2.3")), ElementsAre("10.1.2.3"));
  EXPECT_THAT(texts(look_up(server, "2001:db8::1")), ElementsAre("2001:db8::1"));
  EXPECT_EQ(look_up(server, "fe80::1%lo")->front().scope, 1U);
  for (const char* nonsense : {"", "a b", "-a", "127.1", "a..b", "[::1]"}) {
    EXPECT_FALSE(look_up(server, nonsense).ok()) << nonsense;
  }
  EXPECT_THAT(server.asked(), IsEmpty());
}

TEST(StubResolver, CancellingEndsTheWaitAtOnce) {
  const TestServer server(silent);
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC));
  std::thread other([&] {
    ::usleep(200'000);
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(cancel.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  });
  const auto begin = Clock::now();
  const Found found = look_up(server, "slow.example", "", {.cancel = cancel.get()});
  other.join();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kGone);
  EXPECT_LT(since(begin), test::patient(milliseconds(900)));
}

TEST(StubResolver, ADeadlineEndsItAndTheSilentServerIsNamed) {
  const TestServer server(silent);
  const auto begin = Clock::now();
  const Found found = look_up(server, "slow.example", "", {.deadline = begin + milliseconds(300)});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kTimeout);
  EXPECT_EQ(found.error().message, "look up 'slow.example': the name server " +
                                       server.place().text() + " did not answer in time");
  EXPECT_LT(since(begin), test::patient(milliseconds(1200)));
}

TEST(StubResolver, TheConfigurationSaysHowLongServersAreListenedTo) {
  const TestServer first(silent);
  const TestServer second(silent);
  const StubResolver resolver(
      with({first.place(), second.place()}, "options timeout:1 attempts:1\n"), "");
  const auto begin = Clock::now();
  const Found found = resolver.resolve("slow.example", {});
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message,
              HasSubstr("the name servers " + first.place().text() + " and " +
                        second.place().text() + " did not answer in time"));
  EXPECT_GE(since(begin), milliseconds(1900));
  EXPECT_LT(since(begin), test::patient(seconds(4)));
}

TEST(StubResolver, TheNextServerIsAskedWhereOneFailsIsAwayOrSilent) {
  const TestServer good(both);
  const TestServer failing([](const Asked& asked) -> Replies { return {asked.reply(kServfail)}; });
  const TestServer quiet(silent);
  const Configuration::Server nobody{*Address::parse("127.0.0.1"), 1};
  for (const Configuration::Server& bad : {failing.place(), nobody, quiet.place()}) {
    const StubResolver resolver(with({bad, good.place()}), "");
    const auto begin = Clock::now();
    EXPECT_THAT(texts(resolver.resolve("host.example", {})), ElementsAre("127.1.2.3", "::1"));
    EXPECT_LT(since(begin), test::patient(seconds(3)));
  }
}

TEST(StubResolver, AServerThatIsNotThereIsNamed) {
  const Found found =
      StubResolver(with({{*Address::parse("127.0.0.1"), 1}}), "").resolve("host.example", {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kUnavailable);
  EXPECT_THAT(found.error().message,
              HasSubstr("the name server 127.0.0.1:1 cannot be reached: Connection refused"));
  EXPECT_THAT(found.error().hint, HasSubstr("/etc/resolv.conf"));
}

TEST(StubResolver, ALateAnswerStillCounts) {
  // It answers the first query, when the next server has been asked in vain, and no other.
  const TestServer slow([](const Asked& asked) {
    if (asked.edns && asked.is_a()) {
      ::usleep(1'300'000);
    }
    return asked.edns && asked.is_a() ? both(asked) : Replies{};
  });
  const TestServer quiet(silent);
  const StubResolver resolver(with({slow.place(), quiet.place()}), "");
  EXPECT_THAT(texts(resolver.resolve("host.example", {})), Contains("127.1.2.3"));
  EXPECT_THAT(quiet.asked(), Not(IsEmpty()));
}

TEST(StubResolver, AServerWithoutEdnsIsAskedWithoutIt) {
  constexpr std::string_view kOnce = "options attempts:1\n";
  const TestServer complaining([](const Asked& asked) {
    return asked.edns
               ? Replies{{asked.message[0], asked.message[1], 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0}}
               : both(asked);
  });
  EXPECT_THAT(texts(look_up(complaining, "host.example", kOnce)), Contains("127.1.2.3"));
  const TestServer echoing(
      [](const Asked& asked) { return asked.edns ? Replies{asked.reply(kFormerr)} : both(asked); });
  EXPECT_THAT(texts(look_up(echoing, "host.example", kOnce)), Contains("127.1.2.3"));
  const TestServer dropping(
      [](const Asked& asked) { return asked.edns ? Replies{} : both(asked); });
  EXPECT_THAT(texts(look_up(dropping, "host.example")), Contains("127.1.2.3"));
}

TEST(StubResolver, TcpAloneIsAnOption) {
  const TestServer server(both);
  EXPECT_THAT(texts(look_up(server, "host.example", "options use-vc\n")),
              ElementsAre("127.1.2.3", "::1"));
  for (const Asked& asked : server.asked()) {
    EXPECT_TRUE(asked.tcp);
  }
}

TEST(StubResolver, IPv4AloneIsAnOption) {
  const TestServer server(both);
  EXPECT_THAT(texts(look_up(server, "host.example", "options no-aaaa\n")),
              ElementsAre("127.1.2.3"));
  EXPECT_THAT(server.asked(), SizeIs(1));
}

TEST(StubResolver, RotatingBeginsWithAnyServer) {
  const TestServer first(both);
  const TestServer second(both);
  const StubResolver resolver(with({first.place(), second.place()}, "options rotate\n"), "");
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(resolver.resolve("host.example", {}).ok());
  }
  EXPECT_THAT(first.asked(), Not(IsEmpty()));
  EXPECT_THAT(second.asked(), Not(IsEmpty()));
}

TEST(StubResolver, AServerOfIPv6IsAsked) {
  if (!has_ipv6()) {
    GTEST_SKIP() << "this host has no ::1";
  }
  const TestServer server(both, IN6ADDR_LOOPBACK_INIT);
  const StubResolver resolver(with({server.place("::1")}), "");
  EXPECT_THAT(texts(resolver.resolve("host.example", {})), Contains("127.1.2.3"));
}

TEST(StubResolver, NonsenseOverTcpIsAnErrorAndNoWait) {
  for (const Message& nonsense : {Message{}, Message{1, 2, 3}, Message(60'000, 0xc0)}) {
    const TestServer server([&](const Asked& asked) -> Replies {
      return {asked.tcp ? nonsense : asked.reply(kFoundTruncated)};
    });
    const auto begin = Clock::now();
    const Found found = look_up(server, "host.example");
    ASSERT_FALSE(found.ok());
    EXPECT_THAT(found.error().message, HasSubstr("gives an answer that makes no sense"));
    EXPECT_LT(since(begin), test::patient(seconds(4)));
  }
}

// What the process may have open, as it was before.
class OpenFilesLimit {
 public:
  OpenFilesLimit() { EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0); }
  ~OpenFilesLimit() { restore(); }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;

  // Nothing more can be opened.
  void reach() const {
    rlimit reached = before_;
    const UniqueFd lowest(::dup(STDERR_FILENO));
    reached.rlim_cur = static_cast<rlim_t>(lowest.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &reached), 0);
  }
  void restore() const { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST(StubResolver, WithoutADescriptorForTcpThereIsNoWait) {
  const OpenFilesLimit limit;
  const TestServer server([&](const Asked& asked) -> Replies {
    limit.reach();
    return {asked.reply(kFoundTruncated)};
  });
  const auto begin = Clock::now();
  const Found found = look_up(server, "large.example", "options timeout:30 attempts:1 no-aaaa\n");
  const milliseconds took = since(begin);
  limit.restore();
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message,
              HasSubstr(std::string("cannot be reached: ") + std::strerror(EMFILE)));
  EXPECT_LT(took, test::patient(seconds(5)));
}

}  // namespace
}  // namespace carrel::dns
