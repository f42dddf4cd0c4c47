#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/host.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What a sandbox may use of the network in all, and how it learns that it is over.
class Budgets : public NetworkedTest {
 protected:
  [[nodiscard]] Run python_in(const Box& box, const std::string& code) const {
    return box.sh("python3 - <<'END'\n" + code + "END");
  }
  [[nodiscard]] std::string log_of(const Box& box) const {
    return carrel({"net", "log", box.id()}).out;
  }
  [[nodiscard]] nlohmann::json usage_of(const Box& box) const {
    return nlohmann::json::parse(carrel({"net", "usage", "--json", box.id()}).out, nullptr, false);
  }
};
CARREL_AS_BOTH(Budgets);

TEST_P(Budgets, BytesThatComeInEndAndTheNextRequestIsToldWhy) {
  const Box box(GetParam(), {"--network", "allow=http:allowed.test", "--network-in", "1m"});
  const std::string large = fetching("http://allowed.test/bytes/5000000");
  EXPECT_THAT(python_in(box, large).out, HasSubstr("failed"));
  EXPECT_THAT(python_in(box, fetching("http://allowed.test/")).out,
              AllOf(HasSubstr("403"), HasSubstr("come in over the network, 1048576, is used up")));
  EXPECT_THAT(log_of(box), HasSubstr("come in over the network, 1048576, is used up"));
  EXPECT_EQ(usage_of(box)["budgets"]["bytes_in"], 1048576);
  EXPECT_TRUE(usage_of(box)["budgets"]["bytes_out"].is_null());
}

TEST_P(Budgets, NoMoreBytesLeaveThanMay) {
  const Box box(GetParam(), {"--network", "allow=tcp:allowed.test:7000", "--network-out", "256k"});
  const Run run = python_in(box,
                            "import socket\n"
                            "s = socket.create_connection(('allowed.test', 7000), 10)\n"
                            "came = 0\n"
                            "try:\n"
                            "    for i in range(1000):\n"
                            "        s.sendall(b'x' * 1000)\n"
                            "        came += len(s.recv(1000))\n"
                            "    print('all of it')\n"
                            "except OSError as error:\n"
                            "    print('cut', error)\n"
                            "print('within' if 200000 < came <= 262144 else 'beyond', came)\n"
                            "try:\n"
                            "    s = socket.create_connection(('allowed.test', 7000), 10)\n"
                            "    s.sendall(b'x')\n"
                            "    print('again', s.recv(1))\n"
                            "except OSError as error:\n"
                            "    print('refused', error)\n");
  EXPECT_THAT(run.out, AllOf(HasSubstr("cut"), HasSubstr("within"), HasSubstr("refused")));
  EXPECT_THAT(log_of(box), HasSubstr("leave over the network, 262144, is used up"));
}

TEST_P(Budgets, ConnectionsAtTheSameTimeAreCounted) {
  const Box box(GetParam(),
                {"--network", "allow=tcp:allowed.test:7000", "--network-connections", "3"});
  const Run run = python_in(box,
                            "import socket, time\n"
                            "def one():\n"
                            "    s = socket.create_connection(('allowed.test', 7000), 10)\n"
                            "    s.sendall(b'x')\n"
                            "    return s, s.recv(1)\n"
                            "held = [one() for _ in range(3)]\n"
                            "try:\n"
                            "    print('fourth', one())\n"
                            "except OSError as error:\n"
                            "    print('refused', error)\n"
                            "held.pop()[0].close()\n"
                            "for _ in range(600):\n"
                            "    try:\n"
                            "        print('after', one()[1])\n"
                            "        break\n"
                            "    except OSError:\n"
                            "        time.sleep(0.05)\n");
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("refused"), HasSubstr("after b'x'"), Not(HasSubstr("fourth"))))
      << run.err;
  EXPECT_THAT(log_of(box), HasSubstr("as many connections as it may have at once, 3"));
}

TEST_P(Budgets, LookupsInAMinuteAreCounted) {
  const Box box(GetParam(), {"--network", "allow=*.wild.test", "--network-lookups", "10"});
  const Run run = python_in(box,
                            "import socket\n"
                            "found = 0\n"
                            "for i in range(30):\n"
                            "    try:\n"
                            "        socket.getaddrinfo('n%d.wild.test' % i, 80, socket.AF_INET)\n"
                            "        found += 1\n"
                            "    except OSError:\n"
                            "        pass\n"
                            "print('found', found)\n");
  EXPECT_THAT(run.out, HasSubstr("found 10")) << run.err;
  EXPECT_THAT(log_of(box), HasSubstr("too many lookups in one minute"));
  EXPECT_EQ(usage_of(box)["budgets"]["lookups_per_minute"], 10);
}

TEST_P(Budgets, TheyStayWhenThePolicyIsChangedAndAreShown) {
  const Box box(GetParam(), {"--network", "allow=http:allowed.test", "--network-out", "2k"});
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow=http:evil.test"}).status, 0);
  EXPECT_EQ(usage_of(box)["budgets"]["bytes_out"], 2048);
  EXPECT_THAT(carrel({"net", "usage", box.id()}).out, HasSubstr("0 of 2048"));
}

// One kill costs a sixty-fourth of a budget at most, and gives nothing back.
TEST_P(Budgets, BytesStayUsedWhenTheEgressProcessDies) {
  const Box box(GetParam(), {"--network", "allow=http:allowed.test", "--network-in", "1m"});
  const std::string part = fetching("http://allowed.test/bytes/300000");
  const auto kill_worker = [&] {
    for (const HostProcess& process : processes_of("egress")) {
      ::kill(process.pid, SIGKILL);
    }
  };
  int whole = 0;
  for (int i = 0; i < 6; ++i) {
    const std::string out = python_in(box, part).out;
    whole += out.find("xxxx") != std::string::npos && out.find("failed") == std::string::npos;
    kill_worker();
  }
  EXPECT_EQ(whole, 3);  // of 300,000 bytes each, out of 1,048,576
  EXPECT_THAT(python_in(box, fetching("http://allowed.test/")).out, HasSubstr("is used up"));
}

TEST_P(Budgets, ZeroIsNoBudget) {
  for (const char* option :
       {"--network-out", "--network-in", "--network-connections", "--network-lookups"}) {
    EXPECT_EQ(carrel({"run", "--network", "full", option, "0", "--", "true"}).status, 125)
        << option;
  }
}

}  // namespace
}  // namespace carrel::test
