// R282: with any one of the walls left out, `carrel verify` fails and names the hole.
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/fixture.h"
#include "support/in_namespaces.h"

namespace carrel::test {
namespace {

using nlohmann::json;

struct Wall {
  std::string name;  // what is left out
  std::string hole;  // the attack that has to get through
  // Some walls are there for root's sandboxes only, or cannot be left out for others.
  enum class For { kBoth, kRoot } whom = For::kBoth;
};

const Wall kWalls[] = {
    {"files", "A01_NoCanaryIsFoundInTheTree"},
    {"read-only", "A05_SystemFilesCannotBeChanged"},
    {"seal", "A05_SystemFilesCannotBeChanged"},
    {"proc-sys", "A05_SystemFilesCannotBeChanged"},
    {"devices", "A10_OnlyHarmlessDevicesExist"},
    {"masks", "A13_KernelFilesAreEmpty"},
    {"network", "E14_ListenersOfTheHostAreUnreachable"},
    {"filter", "E09_UnusualSocketsNeverReachTheKernel"},
    {"processes", "G01_ForksEnd"},
    {"undumpable", "A21_TheFirstProcessIsClosed"},
    {"memory", "G03_PrivateMemoryEnds"},
    {"sizes", "G03_TmpEnds"},
    {"processor", "R280_ProcessorTimeEnds", Wall::For::kRoot},
    {"time", "G13_TheTimeLimitEndsEverything"},
    {"open-files", "G07_CountedThingsEnd", Wall::For::kRoot},
    {"rlimits", "G16_QueuedSignalsEnd", Wall::For::kRoot},
    {"groups", "G15_NoControlGroupIsReachable", Wall::For::kRoot},
    {"ipc", "H03_ANewSandboxFindsNothing"},
    {"ipc", "A19_NothingOfAnotherSandboxIsFound"},
    {"environment", "K06_NoSecretOfTheHostIsSeen"},
    {"capabilities", "E01_NoCapabilityIsHeld"},
    {"quota", "E05_NoNamespaceCanBeMadeByQuota"},
    {"noexec", "E18_NoexecPlacesExecuteNothing"},
    {"filter", "F03_NoUnreviewedCallSucceeds"},
};

class Weakened : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped() && ::geteuid() != 0) {
      GTEST_SKIP() << "what is left out must not reach the host: only root can make namespaces for "
                      "that, which an ordinary user's sandboxes then work in";
    }
  }

  // The weakened program in a network and an IPC namespace of this run's own: what gets through
  // gets no further.
  Run verify(const std::string& wall, const std::string& only) {
    const std::string program = place().work(GetParam()) + "/carrel";
    if (::access(program.c_str(), F_OK) != 0) {
      file("carrel", read_text(CARREL_WEAKENED).value_or(""));
      EXPECT_EQ(::chmod(program.c_str(), 0755), 0);
    }
    Launch wrapped = launch({"verify", "--json", "--only", only});
    wrapped.environment.push_back("CARREL_WITHOUT=" + wall);
    wrapped.program = program;
    return Process(in_namespaces(wrapped, {"--net", "--ipc"}, "ip link set lo up"))
        .wait(std::chrono::seconds(120));
  }

  static std::string verdict(const json& report, const std::string& name, std::string& detail) {
    for (const json& finding : report["findings"]) {
      if (finding["name"] == name) {
        detail = finding["detail"];
        return finding["verdict"];
      }
    }
    return "missing";
  }
};
CARREL_AS_BOTH(Weakened);

TEST_P(Weakened, WithNothingLeftOutEverythingHolds) {
  for (const char* group : {"fs", "net", "limits", "privileges"}) {
    const Run run = verify("", group);
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  }
}

TEST_P(Weakened, WhatIsLeftOutIsNamed) {
  for (const Wall& wall : kWalls) {
    if (wall.whom == Wall::For::kRoot && !as_root()) {
      continue;
    }
    Run run = verify(wall.name, wall.hole);
    // While others use the processors, nobody can have more than his share.
    if (std::string(wall.name) == "processor") {
      eventually(std::chrono::seconds(60), [&] {
        run = run.status == 0 ? verify(wall.name, wall.hole) : run;
        return run.status != 0;
      });
    }
    EXPECT_EQ(run.status, 1) << wall.name << ": " << run.err;
    const json report = json::parse(run.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << wall.name << ": " << run.out << run.err;
    std::string detail;
    EXPECT_EQ(verdict(report, wall.hole, detail), "hole") << wall.name << ": " << run.out;
    EXPECT_NE(detail, "") << wall.name;
    EXPECT_EQ(report["ok"], false) << wall.name;
  }
}

}  // namespace
}  // namespace carrel::test
