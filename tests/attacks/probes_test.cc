#include <algorithm>
#include <set>

#include "attacks/attack_test.h"
#include "attacks/probe_table.h"

// Every probe, in a sandbox with the default policy. The name of a probe is the name of its test.
namespace carrel::test {
namespace {

class Probed : public AttackTest {
 protected:
  void run_probe(const std::string& name) {
    const auto cases = probe_cases();
    const auto found = std::find_if(cases.begin(), cases.end(),
                                    [&](const ProbeCase& one) { return one.name == name; });
    ASSERT_NE(found, cases.end()) << name << " is not in the table";
    std::vector<std::string> arguments = found->arguments;
    if (name.starts_with("A15_")) {
      arguments = {path_in_its_file_system("/usr"), path_in_its_file_system("/etc"),
                   place().home(GetParam()), place().work(GetParam())};
    } else if (name.starts_with("E14_Listeners")) {
      arguments = canaries().listeners();
    }
    const Run result = probe(name, arguments, found->options);
    // A probe that takes memory may also be ended for it.
    if (name.starts_with("G03_") && result.status == 137) {
      EXPECT_NE(result.err.find("out of memory"), std::string::npos) << result.err;
      EXPECT_EQ(result.out, "");
      return;
    }
    if (name.starts_with("G13_")) {
      EXPECT_EQ(result.status, 124) << result.out << result.err;
      EXPECT_EQ(result.out, "");
      return;
    }
    EXPECT_TRUE(held(result));
  }
};

#define CARREL_PROBE_TEST(suite, name) \
  TEST_P(suite, name) { run_probe(#name); }

class AttackA : public Probed {};
CARREL_AS_BOTH(AttackA);
CARREL_PROBE_TEST(AttackA, A01_NoCanaryIsFoundInTheTree)
CARREL_PROBE_TEST(AttackA, A02_NoOtherRootIsReachableThroughProc)
CARREL_PROBE_TEST(AttackA, A03_OnlyThreeDescriptorsAreOpen)
CARREL_PROBE_TEST(AttackA, A05_SystemFilesCannotBeChanged)
CARREL_PROBE_TEST(AttackA, A07_MountsCannotBeUncoveredByANamespace)
CARREL_PROBE_TEST(AttackA, A09_DeviceNodesCannotBeMade)
CARREL_PROBE_TEST(AttackA, A10_OnlyHarmlessDevicesExist)
CARREL_PROBE_TEST(AttackA, A11_KernelHelpersCannotBeSet)
CARREL_PROBE_TEST(AttackA, A13_KernelFilesAreEmpty)
CARREL_PROBE_TEST(AttackA, A15_NoPathOfTheHostIsToldOrReachable)
CARREL_PROBE_TEST(AttackA, A17_SystemFilesCannotBeHardLinked)
CARREL_PROBE_TEST(AttackA, A18_ThePageCacheCannotBeWrittenThrough)
CARREL_PROBE_TEST(AttackA, A19_NothingOfAnotherSandboxIsFound)
CARREL_PROBE_TEST(AttackA, A21_TheFirstProcessIsClosed)

class AttackD : public Probed {};
CARREL_AS_BOTH(AttackD);
CARREL_PROBE_TEST(AttackD, D07_NothingOutsideIsReached)

class AttackE : public Probed {};
CARREL_AS_BOTH(AttackE);
CARREL_PROBE_TEST(AttackE, E01_NoCapabilityIsHeld)
CARREL_PROBE_TEST(AttackE, E02_NobodyBecomesRoot)
CARREL_PROBE_TEST(AttackE, E04_NamespacesAreRefused)
CARREL_PROBE_TEST(AttackE, E05_NoNamespaceCanBeMadeByQuota)
CARREL_PROBE_TEST(AttackE, E06_OtherProcessesCannotBeTakenOver)
CARREL_PROBE_TEST(AttackE, E06_TheFirstProcessCannotBeDisturbed)
CARREL_PROBE_TEST(AttackE, E09_UnusualSocketsNeverReachTheKernel)
CARREL_PROBE_TEST(AttackE, E10_KeyringsAreRefused)
CARREL_PROBE_TEST(AttackE, E12_TerminalsCannotBeTypedInto)
CARREL_PROBE_TEST(AttackE, E13_PersonalityAndSecurebitsAreRefused)
CARREL_PROBE_TEST(AttackE, E14_NoSocketOfTheFirstProcessAnswers)
CARREL_PROBE_TEST(AttackE, E14_ListenersOfTheHostAreUnreachable)
CARREL_PROBE_TEST(AttackE, E16_OnlyOwnProcessesAreSeen)
CARREL_PROBE_TEST(AttackE, E17_ClocksCannotBeSet)
CARREL_PROBE_TEST(AttackE, E18_NoexecPlacesExecuteNothing)

class AttackF : public Probed {};
CARREL_AS_BOTH(AttackF);
CARREL_PROBE_TEST(AttackF, F02_OtherAbisAreKilled)
CARREL_PROBE_TEST(AttackF, F03_NoUnreviewedCallSucceeds)
CARREL_PROBE_TEST(AttackF, F04_EveryCallerIsFiltered)
CARREL_PROBE_TEST(AttackF, F06_RingsAreAbsent)
CARREL_PROBE_TEST(AttackF, F07_DangerousCallsAreRefused)
CARREL_PROBE_TEST(AttackF, F08_SwappedArgumentsGainNothing)

class AttackG : public Probed {};
CARREL_AS_BOTH(AttackG);
CARREL_PROBE_TEST(AttackG, G01_ForksEnd)
CARREL_PROBE_TEST(AttackG, G03_PrivateMemoryEnds)
CARREL_PROBE_TEST(AttackG, G03_SharedMemoryEnds)
CARREL_PROBE_TEST(AttackG, G03_MemoryFilesEnd)
CARREL_PROBE_TEST(AttackG, G03_DevShmEnds)
CARREL_PROBE_TEST(AttackG, G03_TmpEnds)
CARREL_PROBE_TEST(AttackG, G03_TheWorkspaceEnds)
CARREL_PROBE_TEST(AttackG, G03_SystemVMemoryEnds)
CARREL_PROBE_TEST(AttackG, G03_PipeBuffersEnd)
CARREL_PROBE_TEST(AttackG, G03_SocketBuffersEnd)
CARREL_PROBE_TEST(AttackG, G07_CountedThingsEnd)
CARREL_PROBE_TEST(AttackG, G13_TheTimeLimitEndsEverything)
CARREL_PROBE_TEST(AttackG, G15_NoControlGroupIsReachable)
CARREL_PROBE_TEST(AttackG, G16_QueuedSignalsEnd)
CARREL_PROBE_TEST(AttackG, G20_MemoryCannotBePinned)
CARREL_PROBE_TEST(AttackG, R280_ProcessorTimeEnds)

class AttackH : public Probed {};
CARREL_AS_BOTH(AttackH);
CARREL_PROBE_TEST(AttackH, H01_NothingOutlivesItsSandbox)
CARREL_PROBE_TEST(AttackH, K06_NoSecretOfTheHostIsSeen)

TEST(AttackTable, EveryProbeHasATest) {
  std::set<std::string> tests;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.GetTestInfo(j)->name();
      tests.insert(name.substr(0, name.find('/')));
    }
  }
  for (const ProbeCase& one : probe_cases()) {
    EXPECT_TRUE(tests.contains(one.name)) << one.name;
  }
}

}  // namespace
}  // namespace carrel::test
