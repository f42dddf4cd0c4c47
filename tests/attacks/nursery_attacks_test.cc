// The same probes in a sandbox whose first process comes from the keeper's nursery: what the host's
// tree, network and processes were there must be gone as in any other.
#include "attacks/attack_test.h"
#include "attacks/probe_table.h"
#include "support/box.h"
#include "support/nursery.h"

namespace carrel::test {
namespace {

class NurseryAttack : public AttackTest {};
CARREL_AS_BOTH(NurseryAttack);

TEST_P(NurseryAttack, EveryProbeWithTheDefaultPolicyFails) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  int probes = 0;
  for (const ProbeCase& one : probe_cases()) {
    if (!one.options.empty()) {
      continue;
    }
    SCOPED_TRACE(one.name);
    std::vector<std::string> arguments = one.arguments;
    if (one.name.starts_with("A15_")) {
      arguments = {path_in_its_file_system("/usr"), path_in_its_file_system("/etc"),
                   place().home(GetParam()), place().work(GetParam())};
    } else if (one.name.starts_with("E14_Listeners")) {
      arguments = canaries().listeners();
    }
    EXPECT_TRUE(held(probe(one.name, arguments)));
    ++probes;
  }
  EXPECT_GE(probes, 40);
}

// The positive control: these probes do run in such a sandbox.
TEST_P(NurseryAttack, SandboxesOfThisTestComeFromTheNursery) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  Process process(launch({"run", "--", "bash", "-c", "echo up; read -r line"}));
  ASSERT_TRUE(process.wait_for_output("up\n", std::chrono::seconds(20)));
  EXPECT_NE(lent_process(), 0);
}

TEST_P(NurseryAttack, NoSocketOfTheNurseryIsWithinReach) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  // No descriptor beyond the three, no mount of the state directory, no process but its own.
  const Run run = script(
      "ls /proc/self/fd | wc -l; grep -c nursery /proc/self/mountinfo /proc/net/unix; "
      "cat /proc/[0-9]*/comm | grep -c nursery; ls /proc/1/fd 2>&1 | wc -l");
  EXPECT_EQ(run.out, "4\n/proc/self/mountinfo:0\n/proc/net/unix:0\n0\n1\n") << run.err;
}

}  // namespace
}  // namespace carrel::test
