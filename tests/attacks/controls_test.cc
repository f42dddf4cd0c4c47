#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "attacks/attack_test.h"
#include "attacks/probe_table.h"

// The probes where nothing protects: each must find its way, or its failure in a sandbox means
// nothing.
namespace carrel::test {
namespace {

Process start_probe_on_host(std::vector<std::string> arguments) {
  Launch launch;
  launch.program = probe_program();
  launch.arguments = std::move(arguments);
  return Process(launch);
}

class Control : public testing::TestWithParam<ProbeCase> {};

TEST_P(Control, SucceedsWithoutProtection) {
  const ControlRun run = run_control(GetParam().name, GetParam().control);
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_EQ(verdict_of(run.out), "open") << run.out;
}

INSTANTIATE_TEST_SUITE_P(Probe, Control,
                         testing::ValuesIn(probe_cases().begin(), probe_cases().end()),
                         [](const testing::TestParamInfo<ProbeCase>& one) {
                           return one.param.name;
                         });

TEST(Harness, EveryProbeIsInTheTable) {
  const test::Run run = start_probe_on_host({"--list"}).wait(std::chrono::seconds(5));
  std::set<std::string> listed;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    listed.insert(line);
  }
  std::set<std::string> known;
  for (const ProbeCase& one : probe_cases()) {
    known.insert(one.name);
  }
  EXPECT_EQ(listed, known);
}

// A host's / may be a directory or a subvolume of its disk: then the image is below that, and what
// is beside it is a path of the host as before.
TEST(Harness, PathsOfTheHostAreComparedWithItsOwnRoot) {
  const auto verdict = [](const std::string& root_of_the_host, const std::string& told,
                          const std::string& place = "/usr") {
    World world;
    world.proc = World::Proc::kNone;
    world.files = {
        {"/proc/self/mountinfo", "36 35 8:1 " + told + " " + place + " ro - ext4 none ro\n"}};
    world.arguments = {root_of_the_host + "/usr", root_of_the_host + "/etc"};
    return verdict_of(run_control("A15_NoPathOfTheHostIsToldOrReachable", world).out);
  };
  EXPECT_EQ(verdict("", "/usr"), "held");
  EXPECT_EQ(verdict("/srv/root", "/srv/root/usr"), "held");
  EXPECT_EQ(verdict("/@", "/@/etc/ssl/certs", "/etc/ssl/certs"), "held");
  EXPECT_EQ(verdict("", "/srv/root/usr"), "open");
  EXPECT_EQ(verdict("/srv/root", "/usr"), "open");
  EXPECT_EQ(verdict("/srv/root", "/srv/root"), "open");
  EXPECT_EQ(verdict("/srv/root", "/srv/root/home/me"), "open");
  EXPECT_EQ(verdict("/srv/root", "/srv/root/etc/ssh", "/etc/ssl"), "open");
}

// What is tried here would do no harm even if it were tried.
TEST(Harness, ProbesRefuseTheHost) {
  for (const std::string& host : {mount_namespace(), std::string("0"), std::string("nonsense"),
                                  mount_namespace() + "x", std::string()}) {
    const test::Run run =
        start_probe_on_host({host, "F06_RingsAreAbsent"}).wait(std::chrono::seconds(5));
    EXPECT_EQ(run.status, 3) << host;
    EXPECT_EQ(run.out, "") << host;
    EXPECT_NE(run.err.find("refused"), std::string::npos) << run.err;
  }
}

TEST(Harness, AControlIsNotTheHost) {
  renew_place();  // with a mount namespace of its own, in which no neighbour mounts
  World world;
  world.files = {{"/etc/passwd", "x"}};
  const std::string before = read_text("/etc/passwd").value_or("");
  const std::set<std::string> mounts = mounts_here();
  run_control("A05_SystemFilesCannotBeChanged", world);
  EXPECT_EQ(read_text("/etc/passwd").value_or(""), before);
  EXPECT_EQ(harm_to_mounts(mounts, mounts_here()), "");
  leave_place();
}

}  // namespace
}  // namespace carrel::test
