// How the program finds the hosts that it talks to itself, with an authority for names that does
// not always do what it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/networked.h"
#include "support/registry.h"

namespace carrel::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Names : public NetworkedTest {
 protected:
  void SetUp() override {
    NetworkedTest::SetUp();
    if (!IsSkipped()) {
      registry_.emplace("hostile", place().work(As::kRoot) + "/registry");
    }
  }
  void TearDown() override {
    registry_.reset();
    NetworkedTest::TearDown();
  }
  // The registry is on this host, and found by the name.
  [[nodiscard]] Run pull(const std::string& host) const {
    return carrel({"image", "pull", "--insecure-http",
                   host + ":" + std::to_string(registry_->port()) + "/good", "--name", "good"},
                  {.timeout_seconds = 60});
  }

  std::optional<RegistryServer> registry_;
};
CARREL_AS_BOTH(Names);

TEST_P(Names, AServerThatFailsForIPv6DoesNotHideTheHost) {
  const Run run = pull("four.test");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(internet_->queries(), Contains("four.test 28"));
}

TEST_P(Names, AnAnswerThatFitsInNoDatagramIsAskedForOverTcp) {
  const Run run = pull("large.test");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(internet_->packets(), Contains("tcp 11.0.0.53 53"));
}

TEST_P(Names, ErrorsSayWhatIsWrong) {
  const Run nobody = pull("nobody.test");
  EXPECT_EQ(nobody.status, 125);
  EXPECT_TRUE(says_one_line(nobody, "look up 'nobody.test': there is no such host"));
  const Run failing = pull("failing.test");
  EXPECT_EQ(failing.status, 125);
  EXPECT_TRUE(says_one_line(failing,
                            "look up 'failing.test': the name server 11.0.0.53 failed (SERVFAIL)"));
  EXPECT_THAT(failing.err, Not(HasSubstr("no such host")));
  const Run silent = pull("silent.test");
  EXPECT_EQ(silent.status, 125);
  EXPECT_TRUE(says_one_line(
      silent, "look up 'silent.test': the name server 11.0.0.53 did not answer in time"));
}

TEST_P(Names, AHostOfAFamilyWithoutARouteIsToldAsSuch) {
  ASSERT_EQ(std::system("PATH=$PATH:/usr/sbin:/sbin; ip -6 route del default"), 0);
  const Run run = pull("six.test");
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "no address but of IPv6, and this host has no route there"));
}

// The egress process looks names up itself.
TEST_P(Names, ASandboxReachesHostsThatAreHardToFind) {
  for (const std::string host : {"cut.test", "plain.test"}) {
    const Run run = python(fetching("http://" + host + "/x"), {"--network", "allow=http:" + host});
    EXPECT_THAT(run.out, HasSubstr("hello from " + host + " /x")) << run.err;
  }
}

}  // namespace
}  // namespace carrel::test
