#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/fixture.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Section H: what may leave a sandbox, against an internet of the test's own.
class Network : public NetworkedTest {
 protected:
  [[nodiscard]] Run fetch(const std::string& url, const std::string& network) {
    return python(fetching(url), {"--network", network});
  }
};
CARREL_AS_BOTH(Network);

TEST_P(Network, R104_NothingIsReachedByDefault) {
  EXPECT_THAT(python(fetching("https://allowed.test/")).out, HasSubstr("failed"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(Network, R106_AnAllowedNameIsReachedAndNoOther) {
  EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out,
              HasSubstr("hello from allowed.test /x"));
  EXPECT_THAT(fetch("https://evil.test/", "allow=allowed.test").out, HasSubstr("failed"));
  EXPECT_THAT(internet_->queries(), Not(Contains(HasSubstr("evil"))));
}

TEST_P(Network, R106_AWildcardIsForNamesBelowItAndNotForItself) {
  EXPECT_THAT(fetch("https://a.wild.test/", "allow=*.wild.test").out, HasSubstr("hello"));
  EXPECT_THAT(fetch("https://wild.test/", "allow=*.wild.test").out, HasSubstr("failed"));
  EXPECT_THAT(fetch("https://evilwild.test/", "allow=*.wild.test").out, HasSubstr("failed"));
}

TEST_P(Network, R105_FullReachesPublicAddressesAndNoOthers) {
  EXPECT_THAT(fetch("https://allowed.test/", "full").out, HasSubstr("hello"));
  for (const char* name : {"inside.test", "loop.test", "metadata.test", "gateway.test"}) {
    EXPECT_THAT(fetch("http://" + std::string(name) + "/", "full").out, HasSubstr("failed"))
        << name;
  }
  EXPECT_THAT(internet_->requests(), testing::SizeIs(1));
}

TEST_P(Network, R108_MetadataAndPrivateAddressesAreDeniedByNameAndByNumber) {
  for (const char* url : {"http://169.254.169.254/", "http://10.1.2.3/", "http://127.0.0.1:80/",
                          "http://11.0.0.2/", "http://[::ffff:10.1.2.3]/"}) {
    EXPECT_THAT(fetch(url, "full").out, HasSubstr("failed")) << url;
  }
  EXPECT_THAT(internet_->requests(), IsEmpty());
  // They can be listed.
  EXPECT_THAT(fetch("http://10.1.2.3/", "allow=http:10.1.2.3").out, HasSubstr("hello"));
}

TEST_P(Network, R111_EachOfSeveralSandboxesHasItsOwnPolicy) {
  const Box nothing(GetParam());
  const Box one(GetParam(), {"--network", "allow=allowed.test"});
  const Box other(GetParam(), {"--network", "allow=a.wild.test"});
  const std::string code = fetching("https://allowed.test/") + fetching("https://a.wild.test/");
  const auto answers = [&](const Box& box) {
    const std::string out = box.sh("python3 - <<'END'\n" + code + "END").out;
    return std::pair(out.find("hello from allowed.test") != std::string::npos,
                     out.find("hello from a.wild.test") != std::string::npos);
  };
  EXPECT_EQ(answers(nothing), std::pair(false, false));
  EXPECT_EQ(answers(one), std::pair(true, false));
  EXPECT_EQ(answers(other), std::pair(false, true));
}

TEST_P(Network, R113_AnEmptyListAllowsNothing) {
  EXPECT_THAT(fetch("https://allowed.test/", "allow=").out, HasSubstr("failed"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(Network, ADeniedRequestIsToldWhy) {
  const Run run = fetch("http://allowed.test/", "allow=allowed.test:443,tcp:evil.test:7000");
  EXPECT_THAT(run.out, AnyOf(HasSubstr("403"), HasSubstr("failed")));
}

TEST_P(Network, D19_TlsForAnotherNameIsCutOff) {
  const Run run = python(
      "import socket, ssl\n"
      "context = ssl._create_unverified_context()\n"
      "sock = socket.create_connection(('allowed.test', 443), 5)\n"
      "try:\n"
      "    context.wrap_socket(sock, server_hostname='evil.test')\n"
      "    print('through')\n"
      "except OSError as error:\n"
      "    print('cut', error)\n",
      {"--network", "allow=allowed.test"});
  EXPECT_THAT(run.out, HasSubstr("cut")) << run.err;
}

TEST_P(Network, R110_AnyProtocolPassesWhereTcpIsAllowed) {
  const Run run = python(
      "import socket\n"
      "sock = socket.create_connection(('allowed.test', 7000), 5)\n"
      "sock.sendall(b'ping')\n"
      "print(sock.recv(10))\n",
      {"--network", "allow=tcp:allowed.test:7000"});
  EXPECT_THAT(run.out, HasSubstr("ping")) << run.err;
}

TEST_P(Network, R110_DatagramsAreRefusedAtOnce) {
  const Run run = python(
      "import socket\n"
      "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
      "try:\n"
      "    sock.sendto(b'x', ('11.1.1.1', 443))\n"
      "    print('sent')\n"
      "except OSError as error:\n"
      "    print('refused', error)\n",
      {"--network", "full"});
  EXPECT_THAT(run.out, HasSubstr("refused")) << run.err;
}

TEST_P(Network, SixthVersionIsReachedAsTheFourth) {
  EXPECT_THAT(fetch("https://six.test/", "allow=six.test").out, HasSubstr("hello from six.test"));
}

TEST_P(Network, R109_LookupsTellNobodyAnything) {
  const Run run = python(
      "import socket\n"
      "found = 0\n"
      "for number in range(300):\n"
      "    for zone in ('evil.test', 'wild.test'):\n"
      "        try:\n"
      "            socket.getaddrinfo('secret%d.%s' % (number, zone), 80)\n"
      "            found += 1\n"
      "        except OSError:\n"
      "            pass\n"
      "print('found', found)\n",
      {"--network", "allow=*.wild.test"});
  EXPECT_THAT(run.out, HasSubstr("found")) << run.err;
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(Network, R114_ThePolicyOfARunningSandboxIsChangedAndExplainedAndLogged) {
  const Box box(GetParam(), {"--network", "allow=allowed.test"});
  EXPECT_THAT(box.sh("python3 - <<'END'\n" + fetching("https://allowed.test/") + "END").out,
              HasSubstr("hello"));
  EXPECT_EQ(carrel({"net", "explain", box.id(), "https://allowed.test/"}).status, 0);
  const Run denied = carrel({"net", "explain", "--json", box.id(), "https://evil.test/"});
  EXPECT_EQ(denied.status, 125);
  EXPECT_THAT(denied.out, HasSubstr("\"allowed\":false"));
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow=evil.test"}).status, 0);
  EXPECT_THAT(box.sh("python3 - <<'END'\n" + fetching("https://allowed.test/") + "END").out,
              HasSubstr("failed"));
  EXPECT_THAT(box.sh("python3 - <<'END'\n" + fetching("https://evil.test/") + "END").out,
              HasSubstr("hello"));
  const Run log = carrel({"net", "log", box.id()});
  EXPECT_THAT(log.out, HasSubstr("connect allowed  allowed.test:443 (11.1.1.1)"));
  EXPECT_THAT(log.out, HasSubstr("lookup denied  allowed.test"));
}

TEST_P(Network, ASandboxThatWasMadeWithoutANetworkIsNotGivenOne) {
  const Box without(GetParam(), {});
  const Run refused = carrel({"net", "set", without.id(), "full"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("has no network"));
  EXPECT_THAT(refused.err, HasSubstr("create --network allow="));
  const std::string get = "python3 - <<'END'\n" + fetching("http://allowed.test/") + "END";
  EXPECT_THAT(without.sh(get).out, HasSubstr("failed"));
  // One that was made with an empty list is.
  const Box empty(GetParam(), {"--network", "allow="});
  EXPECT_THAT(empty.sh(get).out, HasSubstr("failed"));
  EXPECT_EQ(carrel({"net", "set", empty.id(), "full"}).status, 0);
  EXPECT_THAT(empty.sh(get).out, HasSubstr("hello"));
}

TEST_P(Network, ATightenedPolicyEndsWhatItNoLongerAllows) {
  const Box box(GetParam(), {"--network", "allow=tcp:allowed.test:7000"});
  Process client(launch({"exec", box.id(), "--", "python3", "-c",
                         "import socket\n"
                         "sock = socket.create_connection(('allowed.test', 7000), 5)\n"
                         "sock.settimeout(None)\n"
                         "sock.sendall(b'ping')\n"
                         "print(sock.recv(10), flush=True)\n"
                         "try:\n"
                         "    print('got', sock.recv(10))\n"
                         "except OSError as error:\n"
                         "    print('cut', error)\n"}));
  ASSERT_TRUE(client.wait_for_output("ping", std::chrono::seconds(10)));
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow="}).status, 0);
  EXPECT_THAT(client.wait(std::chrono::seconds(10)).out,
              AnyOf(HasSubstr("cut"), HasSubstr("got b''")));
}

TEST_P(Network, D31_AWorkerThatDiesIsReplacedAndNamesStayWhatTheyWere) {
  const Box box(GetParam(), {"--network", "allow=tcp:allowed.test:7000"});
  Process client(launch({"exec", box.id(), "--", "python3", "-c",
                         "import socket, sys, time\n"
                         "address = socket.getaddrinfo('allowed.test', 7000)[0][4]\n"
                         "print('here', flush=True)\n"
                         "sys.stdin.readline()\n"
                         "for attempt in range(100):\n"
                         "    try:\n"
                         "        sock = socket.create_connection(address[:2], 5)\n"
                         "        sock.sendall(b'ping')\n"
                         "        if sock.recv(4) == b'ping':\n"
                         "            print('again')\n"
                         "            break\n"
                         "    except OSError:\n"
                         "        pass\n"
                         "    time.sleep(0.1)\n"}));
  ASSERT_TRUE(client.wait_for_output("here", std::chrono::seconds(10)));
  const std::vector<HostProcess> before = processes_of("egress");
  ASSERT_EQ(before.size(), 2U);
  const bool first_is_above = before[1].parent == before[0].pid;
  ASSERT_EQ(::kill(before[first_is_above ? 1 : 0].pid, SIGKILL), 0);
  client.write("\n");
  EXPECT_THAT(client.wait(std::chrono::seconds(20)).out, HasSubstr("again"));
}

TEST_P(Network, D31_AKilledEgressProcessOpensNothingAndTheNextOneGoesOn) {
  const Box box(GetParam(), {"--network", "allow=allowed.test"});
  const std::string get = "python3 - <<'END'\n" + fetching("https://allowed.test/") + "END";
  ASSERT_THAT(box.sh(get).out, HasSubstr("hello"));
  Process client(launch({"exec", box.id(), "--", "bash", "-c", "echo here; read; " + get}));
  ASSERT_TRUE(client.wait_for_output("here", std::chrono::seconds(10)));
  // The keeper would bring them back.
  const std::vector<HostProcess> keeper = processes_of("keeper");
  ASSERT_EQ(keeper.size(), 1U);
  ASSERT_EQ(::kill(keeper[0].pid, SIGSTOP), 0);
  // The one above first, which would start another.
  std::vector<HostProcess> all = processes_of("egress");
  ASSERT_EQ(all.size(), 2U);
  if (all[0].parent == all[1].pid) {
    std::swap(all[0], all[1]);
  }
  for (const HostProcess& process : all) {
    ASSERT_EQ(::kill(process.pid, SIGKILL), 0);
  }
  client.write("\n");
  EXPECT_THAT(client.wait(std::chrono::seconds(20)).out, HasSubstr("failed"));
  EXPECT_EQ(::kill(keeper[0].pid, SIGCONT), 0);
  EXPECT_THAT(box.sh(get).out, HasSubstr("hello"));
}

// Whoever removes an installation has nothing left of it that tries for ever to start again.
TEST_P(Network, TheEgressProcessEndsWithItsInstallation) {
  const Box box(GetParam(), {"--network", "allow=allowed.test"});
  ASSERT_EQ(box.remove({"--force"}).status, 0);
  const std::vector<HostProcess> serving = processes_of("egress");
  ASSERT_EQ(serving.size(), 2U);
  std::filesystem::remove_all(place().home(GetParam()));
  for (const HostProcess& one : serving) {
    for (const HostProcess& above : serving) {
      if (one.parent == above.pid) {
        ASSERT_EQ(::kill(one.pid, SIGKILL), 0);
      }
    }
  }
  EXPECT_TRUE(eventually(std::chrono::seconds(15), [&] { return processes_of("egress").empty(); }));
}

}  // namespace
}  // namespace carrel::test
