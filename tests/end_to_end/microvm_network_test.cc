// What may leave a sandbox in a virtual machine: the same egress process, over the trunk. A machine
// is emulated where KVM does not work, so these tests are few and each does much.
#include <signal.h>

#include <string>
#include <vector>

#include "support/box.h"
#include "support/machines.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

// What may leave a machine, against an internet of the test's own.
class MicrovmNetwork : public NetworkedTest {
 protected:
  void SetUp() override {
    NetworkedTest::SetUp();
    use_saved_machines();
    plant_saved_machine(GetParam());
  }
  void TearDown() override {
    await_savers();
    NetworkedTest::TearDown();
  }
  static std::vector<std::string> with(const std::string& network) {
    return {"--backend", "microvm", "--network", network};
  }
};
CARREL_AS_BOTH(MicrovmNetwork);

TEST_P(MicrovmNetwork, TheEgressProcessDecides) {
  const Box box(GetParam(), with(kAllowed));
  expect_the_egress_process_decides(box);
}

TEST_P(MicrovmNetwork, WithoutAnEgressProcessNothingLeaves) {
  const Box box(GetParam(), with("full"));
  ASSERT_NE(inside(box, fetching("https://allowed.test/")).find("hello"), std::string::npos);
  std::vector<HostProcess> all = processes_of("egress");
  ASSERT_FALSE(all.empty());
  for (const HostProcess& one : all) {  // held, and not ended: nobody brings it back
    ASSERT_GT(one.pid, 1);
    ASSERT_EQ(::kill(one.pid, SIGSTOP), 0);
  }
  const std::size_t before = internet_->requests().size();
  const std::string nothing = inside(box, fetching("https://allowed.test/"));
  EXPECT_EQ(nothing.find("hello"), std::string::npos) << nothing;
  EXPECT_EQ(internet_->requests().size(), before);
  for (const HostProcess& one : all) {
    ASSERT_EQ(::kill(one.pid, SIGKILL), 0);
  }
  // The next one finds the machine.
  EXPECT_TRUE(eventually(seconds(60), [&] {
    return inside(box, fetching("https://allowed.test/")).find("hello") != std::string::npos;
  }));
}

TEST_P(MicrovmNetwork, AOneShotHasOneToo) {
  const std::string code = fetching("https://allowed.test/z") + fetching("https://evil.test/");
  const Run run = carrel({"run", "--backend", "microvm", "--network", "allow=allowed.test",
                          "--timeout", "150", "--", "python3", "-c", code},
                         {.timeout_seconds = 200});
  EXPECT_NE(run.out.find("hello from allowed.test /z"), std::string::npos) << run.out << run.err;
  EXPECT_NE(run.out.find("failed"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace carrel::test
